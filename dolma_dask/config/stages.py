"""The stages of a pipeline: a verb with its arguments, what it reads and writes, and which of them a run is asked for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dolma_dask.config.arguments import Argument, arguments_of
from dolma_dask.config.variables import near
from dolma_dask.config.yaml_nodes import Place
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.registry import VERBS, Verb


@dataclass(frozen=True)
class StagePlan:
    """One stage.

    Attributes
    ----------
    name : str
        By which ``--only`` and ``--from`` know it.
    verb : str
        What it does.
    arguments : Mapping[str, object]
        By name, as in Python.
    place : Place
        Where it stands in the file.
    places : Mapping[str, Place]
        Where each argument stands.
    """

    name: str
    verb: str
    arguments: Mapping[str, Any]
    place: Place = field(default_factory=Place)
    places: Mapping[str, Place] = field(default_factory=dict)

    @property
    def entry(self) -> Verb:
        """Its verb in the registry."""
        return VERBS[self.verb]

    @cached_property
    def takes(self) -> dict[str, Argument]:
        """What the verb takes."""
        return arguments_of(self.entry.load())

    def call(self, **more: Any) -> Any:
        """Call the verb; `more` replaces arguments, those that it does not take are left out."""
        values = {**self.arguments, **{name: value for name, value in more.items() if name in self.takes}}
        positional = [name for name, argument in self.takes.items() if argument.positional and name in values]
        named = {name: value for name, value in values.items() if name not in positional}
        return self.entry.load()(*(values[name] for name in positional), **named)

    def given(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the texts of some arguments, also where they stand in a map: `mix` makes token files as other verbs do."""
        groups = [self.arguments, *(value for value in self.arguments.values() if isinstance(value, Mapping))]
        for value in (group.get(name) for name in names for group in groups):
            if isinstance(value, str):
                yield value
            elif isinstance(value, Sequence):
                yield from (item for item in value if isinstance(item, str))

    def place_of(self, name: str, given: Any) -> Place:
        """Return where an argument stands that was given so, or the map that it stands in."""
        holders = (
            key
            for key, value in self.arguments.items()
            if isinstance(value, Mapping) and value.get(name) == given
        )
        return self.places.get(name) or self.places.get(next(holders, ""), self.place)

    @property
    def reads(self) -> tuple[str, ...]:
        """Where it reads, as full paths or URLs."""
        return tuple(map(full, self.given((*self.entry.reads, *self.entry.files))))

    @property
    def writes(self) -> tuple[str, ...]:
        """Where it writes."""
        return tuple(map(full, self.given({*self.entry.writes, *(["dataset"] if self.is_beside else [])})))

    @property
    def is_beside(self) -> bool:
        """Whether it writes beside the documents that it reads: `mix` marks those that lists name."""
        return "dataset" in self.entry.writes or any(self.given(self.entry.writes_with))

    def needs(self, other: "StagePlan") -> bool:
        """Tell whether it reads what `other` writes."""
        return any(is_in(place, made) or is_in(made, place) for place in self.reads for made in other.writes)


def full(url: str) -> str:
    """Return a place as an absolute path or URL; a dataset by its root."""
    return layout.dataset_root(files.normalize(url))


def is_in(url: str, folder: str) -> bool:
    """Tell whether `url` is `folder` or lies below it; both as `full` returns them."""
    return f"{url}/".startswith(f"{folder}/")


def named(stages: Sequence[StagePlan]) -> tuple[StagePlan, ...]:
    """Return stages with names: their own, else the verb, with a number where the verb occurs several times."""
    verbs = [stage.verb for stage in stages if not stage.name]
    seen: dict[str, int] = {}
    found = []
    for stage in stages:
        if not stage.name:
            seen[stage.verb] = seen.get(stage.verb, 0) + 1
            several = verbs.count(stage.verb) > 1
            stage = replace(stage, name=f"{stage.verb}-{seen[stage.verb]}" if several else stage.verb)
        found.append(stage)
    return tuple(found)


def chosen(
    stages: Sequence[StagePlan], only: Sequence[str], first: str | None, file: str
) -> tuple[StagePlan, ...]:
    """Return the stages that are asked for.

    Parameters
    ----------
    stages : sequence of StagePlan
        All of them.
    only : sequence of str
        Names of stages, or verbs for all of their stages; empty means all.
    first : str, optional
        The stage to begin with.
    file : str
        For messages.

    Raises
    ------
    UsageError
        There is no such stage, or both were given.
    """
    if only and first is not None:
        raise UsageError("--only and --from were both given; expected one of them.")
    wanted = {stage.name for word in only for stage in _of(stages, word, file, "--only")}
    if first is not None:
        begin = stages.index(_of(stages, first, file, "--from")[0])
        wanted = {stage.name for stage in stages[begin:]}
    return tuple(stage for stage in stages if stage.name in wanted or not (only or first is not None))


def _of(stages: Sequence[StagePlan], word: str, file: str, option: str) -> list[StagePlan]:
    found = [stage for stage in stages if stage.name == word] or [
        stage for stage in stages if stage.verb == word
    ]
    if not found:
        known = list(dict.fromkeys([*(s.name for s in stages), *(s.verb for s in stages)]))
        raise UsageError(f"{option} {word}: {file} has no such stage; {near(word, known, 'stages:')}")
    return found
