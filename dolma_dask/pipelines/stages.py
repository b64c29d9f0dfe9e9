"""The stages of a pipeline: a verb with its arguments, what it reads and writes, and the stages that a run is to do."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from yaml import Node

from dolma_dask.dataset import version_root
from dolma_dask.display import near_or_all
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.pipelines.signatures import Argument, arguments_of, command_of
from dolma_dask.registry import VERBS, Verb


def _maps(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a value if it is a map, or the maps of a list."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    yield from (one for one in values if isinstance(one, Mapping))


class StagePlan(Struct, frozen=True, dict=True):
    """One stage."""

    name: str  # by which --only and --from know it
    verb: str
    arguments: Mapping[str, Any]  # by name, as in Python
    at: Node | None = None  # in the file
    nodes: Mapping[str, Node] = {}  # of the arguments

    @property
    def line(self) -> int:
        """Line in the file, from 1."""
        return self.at.start_mark.line + 1 if self.at else 0

    @property
    def entry(self) -> Verb:
        """Its verb in the registry."""
        return VERBS[self.verb]

    @cached_property
    def takes(self) -> dict[str, Argument]:
        """Arguments of the verb."""
        return arguments_of(self.entry.load())

    @cached_property
    def located(self) -> dict[str, Any]:
        """Its arguments with the full path of the dataset that `source` and `version` name, and of a version that it is compared with."""
        values = dict(self.arguments)
        root, source = values.get("dataset"), values.get("source")
        if root and values.get("version"):
            values["dataset"] = version_root(root, source, values.pop("version"))
            if "/" not in (values.get("against") or "/"):
                values["against"] = version_root(root, source, values["against"])
        return values

    def call(self, **more: Any) -> Any:
        """Call the verb; `more` replaces arguments, those that it does not take are left out."""
        values = self._with(more)
        names = [name for name, argument in self.takes.items() if argument.positional and name in values]
        first = [values.pop(name) for name in names]
        return self.entry.load()(*first, **values)

    def _with(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.arguments, **{name: value for name, value in more.items() if name in self.takes}}

    def check(self, more: Mapping[str, Any]) -> None:
        """Refuse options that `call` would refuse before it looks at any file.

        Raises `UsageError`: a value is none, or two do not go together.
        """
        known = command_of(self.entry.load())
        by_name = {name: value for name, value in self._with(more).items() if name not in known.positions}
        known.options.of(by_name, self.verb)

    def given(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the texts of some arguments, also where they stand in a map: `mix` makes token files as other verbs do."""
        groups = [self.located, *(group for value in self.arguments.values() for group in _maps(value))]
        for value in (group.get(name) for name in names for group in groups):
            if isinstance(value, str):
                yield value
            elif isinstance(value, Sequence):
                yield from (item for item in value if isinstance(item, str))

    def node_of(self, name: str, value: Any) -> Node | None:
        """Return where an argument stands that has a value, or the map that it stands in."""
        maps = [(key, group) for key, given in self.arguments.items() for group in _maps(given)]
        holder = next((key for key, group in maps if group.get(name) == value), "")
        return self.nodes.get(name) or self.nodes.get(holder, self.at)

    @property
    def reads(self) -> list[str]:
        """Inputs of the stage, as absolute paths or URLs."""
        return list(map(absolute, self.given((*self.entry.reads, *self.entry.files, *self._read_only))))

    @property
    def writes(self) -> list[str]:
        """Outputs of the stage."""
        return list(map(absolute, self.given(self._written)))

    @property
    def changes(self) -> list[str]:
        """Datasets that it writes beside their documents."""
        return list(map(absolute, self.given(name for name in self._written if name in self.entry.reads)))

    @property
    def _written(self) -> tuple[str, ...]:
        """Arguments that name what it writes: `mix` flags the documents that lists name."""
        lists = any(self.given(self.entry.writes_with))
        written = tuple(name for name in self.entry.writes if name not in self._read_only)
        return (*written, "dataset") if lists else written

    @property
    def _read_only(self) -> tuple[str, ...]:
        """Arguments that name what it writes, unless another one says that it is read."""
        name, where = self.entry.read_where
        return (name,) if where and self.arguments.get(where) else ()

    def needs(self, other: "StagePlan") -> bool:
        """Tell whether it reads what `other` writes."""
        return any(is_in(url, made) or is_in(made, url) for url in self.reads for made in other.writes)


def absolute(url: str) -> str:
    """Return an absolute path or URL; of a dataset its root."""
    return layout.dataset_root(files.normalize(url))


def is_in(url: str, folder: str) -> bool:
    """Tell whether `url` is `folder` or lies below it; both absolute."""
    return f"{url}/".startswith(f"{folder}/")


def named(stages: Sequence[StagePlan]) -> tuple[StagePlan, ...]:
    """Return stages with names: their own, else the verb, with a number where the verb occurs several times."""
    verbs = [stage.verb for stage in stages if not stage.name]
    seen: list[str] = []
    result = []
    for stage in stages:
        if not stage.name:
            seen.append(stage.verb)
            number = f"-{seen.count(stage.verb)}" if verbs.count(stage.verb) > 1 else ""
            stage = replace(stage, name=f"{stage.verb}{number}")
        result.append(stage)
    return tuple(result)


def selected(
    stages: Sequence[StagePlan], only: Sequence[str], first: str | None, file: str
) -> tuple[StagePlan, ...]:
    """Return the stages that were requested: those of the names or verbs in `only`, or `first` and those after it.

    Raises `UsageError`: there is no such stage, or both were given.
    """
    if only and first is not None:
        raise UsageError("--only and --from were both given; expected one of them.")
    if first is not None:
        return tuple(stages[stages.index(_named(stages, first, file, "--from")[0]) :])
    names = {stage.name for word in only for stage in _named(stages, word, file, "--only")}
    return tuple(stage for stage in stages if stage.name in names or not only)


def _named(stages: Sequence[StagePlan], word: str, file: str, option: str) -> list[StagePlan]:
    known = [stage.name for stage in stages] + [stage.verb for stage in stages]
    if word not in known:
        raise UsageError(
            f"{option} {word}: {file} has no such stage; {near_or_all(word, dict.fromkeys(known))}"
        )
    return [stage for stage in stages if stage.name == word] or [
        stage for stage in stages if stage.verb == word
    ]
