"""A pipeline in YAML -> its stages, checked in full before anything runs.

::

    variables:
      out: corpus/wiki
    stages:
      - tag:
          dataset: ${out}/v0
          taggers: [gopher_v2, char_length_v1]
      - name: english
        mix: {dataset: "${out}/v0", to: "${out}/v1", where: word_count >= 50}
    report: {dataset: "${out}/v1", to: wiki.html}

Each stage is a verb with its options, named as on the command line and in Python. All mistakes are told at once, with line and column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dolma_dask.config.arguments import Argument, arguments_of
from dolma_dask.config.conversion import FAILED, convert_value
from dolma_dask.config.stages import StagePlan, named
from dolma_dask.config.variables import Variables, near, variables_of
from dolma_dask.config.yaml_nodes import Items, Mistakes, Node, Pairs, Place, Scalar, read_yaml
from dolma_dask.registry import VERBS

TOP = ("variables", "defaults", "stages", "report")
NAME = "name"

NOT_HERE = {
    "dry_run": "it belongs to the command: dolma-dask run FILE --dry-run",
}
"""Options of verbs that a file cannot have, and why."""

NOT_SHARED = ("only", "prune", "overwrite", *NOT_HERE)
"""Shared options that say nothing about all stages at once."""


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline as it was read.

    Attributes
    ----------
    file : str
        Its path or URL.
    stages : tuple of StagePlan
        In order.
    """

    file: str
    stages: tuple[StagePlan, ...]


def read_pipeline(url: str, variables: Mapping[str, str]) -> PipelineFile:
    """Read a pipeline and check all of it.

    Parameters
    ----------
    url : str
        Path or URL of the YAML file.
    variables : Mapping[str, str]
        Values that replace those of its ``variables:``.

    Raises
    ------
    UsageError
        With all mistakes: each with line, column and what is valid there.
    """
    mistakes = Mistakes(url)
    top = read_yaml(url, mistakes)
    if not isinstance(top, Pairs):
        mistakes.add(top.place, "the file is no map; expected `stages:` with a list of verbs.")
        mistakes.check()
        raise AssertionError  # pragma: no cover
    for key, place in top.keys.items():
        if key not in TOP:
            mistakes.add(place, f"{key!r} is not known here; {_near_top(key)}")
    values = variables_of(top.values.get("variables"), variables, mistakes)
    reader = _Reader(values, mistakes)
    stages = reader.stages(top)
    mistakes.check()
    return PipelineFile(url, stages)


def _near_top(key: str) -> str:
    if key in VERBS:
        return f"put it below `stages:`, as `- {key}:`."
    return near(key, TOP, "")


@dataclass
class _Reader:
    """Reads stages; what is wrong goes to `mistakes`."""

    variables: Variables
    mistakes: Mistakes

    def stages(self, top: Pairs) -> tuple[StagePlan, ...]:
        """Return all stages, the report at the end included."""
        defaults = self._defaults(top.values.get("defaults"))
        block = top.values.get("stages")
        items: Sequence[Node] = ()
        if isinstance(block, Items) and block.items:
            items = block.items
        else:
            place = top.keys.get("stages", top.place)
            self.mistakes.add(
                place, "`stages:` expects a list of verbs, such as `- tag: {dataset: ..., taggers: [...]}`."
            )
        found = [stage for stage in (self._stage(item, defaults) for item in items) if stage]
        if "report" in top.values:
            found.append(self._verb("", "report", top.keys["report"], top.values["report"], defaults))
        self._check_names(found)
        return named(found)

    def _check_names(self, stages: Sequence[StagePlan]) -> None:
        places: dict[str, Place] = {}
        for stage in named(stages):
            if stage.name in places:
                self.mistakes.add(
                    stage.place,
                    f"a second stage {stage.name!r}; first in line {places[stage.name].line}. Give it another name.",
                )
            places.setdefault(stage.name, stage.place)

    def _stage(self, item: Node, defaults: Pairs) -> StagePlan | None:
        if isinstance(item, Scalar) and item.text in VERBS:
            item = Pairs({item.text: Scalar("", place=item.place)}, {item.text: item.place}, item.place)
        if not isinstance(item, Pairs):
            self.mistakes.add(item.place, f"expected a verb with its options; {near(_text(item), VERBS, '')}")
            return None
        verbs = [key for key in item.values if key in VERBS]
        for key, place in item.keys.items():
            if key not in VERBS and key != NAME:
                self.mistakes.add(place, f"{key!r} is no verb; {_near_verb(key, verbs)}")
        if len(verbs) > 1:
            self.mistakes.add(
                item.keys[verbs[1]],
                f"{verbs[1]!r} stands in one item with {verbs[0]!r}; begin each verb with a dash.",
            )
        if not verbs:
            if not any(key != NAME for key in item.values):
                self.mistakes.add(item.place, f"no verb; expected one of {', '.join(VERBS)}.")
            return None
        return self._verb(self._name(item), verbs[0], item.keys[verbs[0]], item.values[verbs[0]], defaults)

    def _name(self, item: Pairs) -> str:
        node = item.values.get(NAME)
        if node is None:
            return ""
        value = convert_value(self.variables.resolve(node), str, NAME, self.mistakes)
        return value if isinstance(value, str) else ""

    def _verb(self, name: str, verb: str, place: Place, options: Node, defaults: Pairs) -> StagePlan:
        if isinstance(options, Scalar) and options.is_nothing:
            options = Pairs({}, {}, options.place)
        if not isinstance(options, Pairs):
            self.mistakes.add(
                options.place, f"{verb} expects a map of its options, such as `dataset: corpus/wiki`."
            )
            return StagePlan(name, verb, {}, place)
        takes = arguments_of(VERBS[verb].load())
        values: dict[str, object] = {}
        places: dict[str, Place] = {}
        for key, node in options.values.items():
            argument = self._argument(verb, key, takes, options.keys[key])
            if argument is None:
                continue
            if argument.name in places:
                self.mistakes.add(
                    options.keys[key], f"{verb}.{argument.name} stands twice. Remove one of them."
                )
            places[argument.name] = node.place
            self._put(values, argument, node, f"{verb}.{key}")
        for key, node in defaults.values.items():
            if key in takes and key not in places:
                self._put(values, takes[key], node, f"defaults.{key}")
        self._check_needed(verb, place, takes, places)
        return StagePlan(name, verb, values, place, places)

    def _argument(self, verb: str, key: str, takes: Mapping[str, Argument], place: Place) -> Argument | None:
        name = key.replace("-", "_")
        if name in NOT_HERE:
            self.mistakes.add(place, f"{verb}.{key}: {NOT_HERE[name]}.")
            return None
        if name not in takes:
            valid = [known for known in takes if known not in NOT_HERE]
            self.mistakes.add(place, f"{verb} has no option {key!r}; {near(name, valid, '')}")
            return None
        return takes[name]

    def _put(self, values: dict[str, object], argument: Argument, node: Node, what: str) -> None:
        value = convert_value(self.variables.resolve(node), argument.hint, what, self.mistakes, argument.maps)
        if value is not FAILED:
            values[argument.name] = value

    def _check_needed(
        self, verb: str, place: Place, takes: Mapping[str, Argument], places: Mapping[str, Place]
    ) -> None:
        missing = [name for name, argument in takes.items() if argument.needed and name not in places]
        if missing:
            *first, last = (f"`{name}`" for name in missing)
            names = f"{', '.join(first)} and {last}" if first else last
            self.mistakes.add(place, f"{verb} needs {names}, which {'are' if first else 'is'} missing.")

    def _defaults(self, block: Node | None) -> Pairs:
        """Return the checked block ``defaults:``, options that all stages get which take them."""
        if block is None or (isinstance(block, Scalar) and block.is_nothing):
            return Pairs({}, {})
        if not isinstance(block, Pairs):
            self.mistakes.add(
                block.place, "`defaults:` expects a map of options, such as `on_bad_record: quarantine`."
            )
            return Pairs({}, {})
        known = _shared_options()
        found = {}
        for key, node in block.values.items():
            name = key.replace("-", "_")
            if name not in known:
                self.mistakes.add(block.keys[key], f"defaults has no option {key!r}; {near(name, known, '')}")
                continue
            convert_value(self.variables.resolve(node), known[name].hint, f"defaults.{key}", self.mistakes)
            found[name] = node
        return Pairs(found, block.keys, block.place)


def _shared_options() -> dict[str, Argument]:
    """Return the options that many verbs share and that can hold for all stages."""
    taken = arguments_of(VERBS["mix"].load())
    return {name: argument for name, argument in taken.items() if argument.shared and name not in NOT_SHARED}


def _near_verb(key: str, verbs: Sequence[str]) -> str:
    if verbs:
        return f"options of {verbs[0]} stand below it, indented by two more spaces."
    return near(key, [*VERBS, NAME], "")


def _text(node: Node) -> str:
    return node.text if isinstance(node, Scalar) else ""
