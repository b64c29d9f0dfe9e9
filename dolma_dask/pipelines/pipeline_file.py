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

Each stage is a verb with its options, named as on the command line and in Python. All mistakes are reported at once, with line and column.
Variables are ``${name}``, ``${env:NAME}``, and ``:-`` with what stands in for a missing one; ``$${`` is a plain ``${``.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from cyclopts import Parameter
from yaml import MappingNode, Node, ScalarNode

from dolma_dask.display import near_or_all
from dolma_dask.errors import UsageError
from dolma_dask.extras import require
from dolma_dask.io import files
from dolma_dask.io.tokenizer import find_tokenizer
from dolma_dask.io.yaml_files import (
    FAILED,
    Mistakes,
    References,
    convert,
    convert_options,
    is_nothing,
    pairs,
    read_yaml,
    scalar,
)
from dolma_dask.options.groups import IdOptions
from dolma_dask.options.records import RecordOptions
from dolma_dask.pipelines.signatures import Argument, arguments_of, shared_arguments
from dolma_dask.pipelines.stages import StagePlan, absolute, is_in, named
from dolma_dask.registry import VERBS, load

COMMAND_ONLY = ("dry_run",)
"""Options that belong to the command."""

OF_ALL = ("cluster",)
"""Options that say something about all stages: a run has one cluster."""

NOT_SHARED = ("only", "share", "prune", "overwrite", *COMMAND_ONLY)
"""Shared options that say nothing about all stages at once."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The blocks of a file; each is read by itself."""

    variables: dict[str, Any] | None = None
    defaults: dict[str, Any] | None = None
    stages: list[Any] = []
    report: dict[str, Any] | None = None


def read_pipeline(url: str, variables: Mapping[str, str]) -> tuple[StagePlan, ...]:
    """Read a pipeline and check all of it; `variables` replace those of the file.

    Raises `UsageError`: with all mistakes: each with line, column and what is valid there.
    """
    mistakes = Mistakes(url)
    top = read_yaml(url, mistakes)
    blocks = pairs(top) if isinstance(top, MappingNode) else {}
    for verb in blocks.keys() & (VERBS.keys() - {"report"}):
        mistakes.add(blocks[verb][0], f"put {verb!r} below `stages:`, as `- {verb}:`.")
    convert(top, _File, "", mistakes, lax=True)
    items = blocks["stages"][1].value if "stages" in blocks else []
    if not items:
        mistakes.add(
            top, "`stages:` expects a list of verbs, such as `- tag: {dataset: ..., taggers: [...]}`."
        )
    mistakes.check()
    known = Variables(blocks["variables"][1] if "variables" in blocks else scalar(""), variables, mistakes)
    reader = _Stages(known.resolve(blocks["defaults"][1]) if "defaults" in blocks else scalar(""), mistakes)
    stages = [stage for item in items if (stage := reader.item(known.resolve(item)))]
    if "report" in blocks:
        stages.append(reader.verb("", "report", blocks["report"][0], known.resolve(blocks["report"][1])))
    lines: dict[str, int] = {}
    for stage in named(stages):
        first = lines.setdefault(stage.name, stage.line)
        if first != stage.line:
            mistakes.add(
                stage.at, f"a second stage {stage.name!r}; first in line {first}. Give it another name."
            )
    mistakes.check()
    return named(stages)


class _Stages:
    """Reads stages, whose variables are replaced; what is wrong goes to `mistakes`."""

    def __init__(self, defaults: Node, mistakes: Mistakes) -> None:
        self.mistakes, self.wrong = mistakes, mistakes.add
        every = shared_arguments(IdOptions) | shared_arguments(RecordOptions)
        shared = {name: one for name, one in every.items() if name not in NOT_SHARED}
        self.defaults = self._values("defaults", defaults, defaults, shared)[0]

    def _values(
        self, what: str, at: Node, block: Node, takes: Mapping[str, Argument]
    ) -> tuple[dict[str, Any], dict[str, Node]]:
        """Return the values of a map of options, and their nodes."""
        options: dict[str, tuple[Node, Node]] = {}
        for key, (at_key, node) in ({} if is_nothing(block) else pairs(block)).items():
            name = key.replace("-", "_")
            if name in COMMAND_ONLY:
                self.wrong(at_key, f"{what}.{key}: it belongs to the command: dolma-dask run FILE --dry-run.")
            elif name in OF_ALL and what != "defaults":
                self.wrong(
                    at_key,
                    f"{what}.{key}: all stages have the same; put it under `defaults:`, or give --{name}.",
                )
            elif name in options:
                self.wrong(at_key, f"{what}.{name} stands twice. Remove one of them.")
            else:
                options[name] = scalar(name, at_key), node
        hints = {name: one.hint for name, one in takes.items() if name not in COMMAND_ONLY}
        needed = [name for name, one in takes.items() if one.needed]
        given = MappingNode("tag:yaml.org,2002:map", list(options.values()), at.start_mark)
        values = convert_options(given, hints, needed, what, self.mistakes)
        return values, {name: node for name, (_, node) in options.items()}

    def item(self, item: Node) -> StagePlan | None:
        """Return the stage of an item of the list."""
        if isinstance(item, ScalarNode) and item.value in VERBS:
            return self.verb("", item.value, item, scalar("", item))
        if not isinstance(item, MappingNode):
            text = item.value if isinstance(item, ScalarNode) else ""
            self.wrong(item, f"expected a verb with its options; {near_or_all(text, VERBS)}")
            return None
        parts = pairs(item)
        verbs = [key for key in parts if key in VERBS]
        for key in parts.keys() - {*verbs, "name"}:
            hint = near_or_all(key, [*VERBS, "name"])
            if verbs:
                hint = f"options of {verbs[0]} stand below it, indented by two more spaces."
            self.wrong(parts[key][0], f"{key!r} is no verb; {hint}")
        if len(verbs) > 1:
            self.wrong(
                parts[verbs[1]][0],
                f"{verbs[1]!r} stands in one item with {verbs[0]!r}; begin each verb with a dash.",
            )
        if not verbs:
            if not parts.keys() - {"name"}:
                self.wrong(item, f"no verb; expected one of {', '.join(VERBS)}.")
            return None
        name = convert(parts["name"][1], str, "name", self.mistakes) if "name" in parts else ""
        return self.verb("" if name is FAILED else name, verbs[0], *parts[verbs[0]])

    def verb(self, name: str, verb: str, at: Node, options: Node) -> StagePlan:
        """Return a stage with the values of its options."""
        if not isinstance(options, MappingNode) and not is_nothing(options):
            self.wrong(options, f"{verb} expects a map of its options, such as `dataset: corpus/wiki`.")
            return StagePlan(name, verb, {}, at)
        takes = arguments_of(VERBS[verb].load())
        values, nodes = self._values(verb, at, options, takes)
        shared = {option: value for option, value in self.defaults.items() if option in takes}
        return StagePlan(name, verb, shared | values, at, nodes)


# ------------------------------------------------------------------------------------------------ variables

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Variables(References):
    """Replaces ``${...}`` by variables of a file, by values `given` for them, or by the environment."""

    pattern = re.compile(r"\$\$\{|\$\{(?:(env:)?([A-Za-z_][A-Za-z0-9_]*)(:-[^{}]*)?\}|)")

    def __init__(self, block: Node, given: Mapping[str, str], mistakes: Mistakes) -> None:
        super().__init__(mistakes)
        declared = {} if is_nothing(block) else pairs(block)
        for name, (at, value) in declared.items():
            if not _NAME.fullmatch(name):
                mistakes.add(at, f"{name!r} is no name of a variable; expected letters, digits and _.")
            elif isinstance(value, MappingNode):
                mistakes.add(
                    value, f"variables.{name} is a map; expected a text, a number or a list of them."
                )
        self._values = {name: value for name, (_, value) in declared.items()}
        for name, text in given.items():
            if name not in self._values:
                mistakes.add(None, f"--set {name}: the file has no such variable; {self._near(name)}")
            self._values[name] = scalar(text)

    def find(self, match: re.Match[str], node: Node, path: tuple[str, ...]) -> Node:
        """Return the value of a variable; what stands in for it where there is none."""
        if match[0] == "$${":
            return scalar("${", node)
        is_environment, name, otherwise = match[1], match[2], match[3]
        if name is None:
            forms = "${name}, ${name:-otherwise}, ${env:NAME} or ${env:NAME:-otherwise}"
            self.mistakes.add(node, f"{node.value!r}: expected {forms}; a plain ${{ is written $${{.")
            return node
        if is_environment and name in os.environ:
            return scalar(os.environ[name], node)
        value = None if is_environment else self._values.get(name)
        if value is not None and not is_nothing(value):
            way = " -> ".join([*self._open, name])
            found = self.follow(name, value)
            return found or self.wrong(node, f"${{{name}}} is defined by itself: {way}.")
        if otherwise is not None:
            return scalar(otherwise.removeprefix(":-"), node)
        if is_environment:
            expected = f"expected a value. Set it, or write ${{env:{name}:-otherwise}}."
            return self.wrong(node, f"the environment variable {name} is not set; {expected}")
        if value is not None:
            return self.wrong(node, f"${{{name}}} has no value; give it one: --set {name}=VALUE.")
        return self.wrong(node, f"${{{name}}} is not defined; {self._near(name)}")

    def _near(self, name: str) -> str:
        known = self._values
        return near_or_all(name, known) if known else "there are none; declare it under variables:"


SET = Parameter(name="--set")
"""The option that gives variables, on the command line."""


def variables_of(given: object) -> dict[str, str]:
    """Return values for variables as texts: from ``["name=value"]`` of the command line, or a map from Python.

    Raises `UsageError`: it is neither.
    """
    if isinstance(given, Mapping):
        return {str(name): _spelled(name, value) for name, value in given.items()}
    if not isinstance(given, Iterable):
        raise UsageError(f"variables={given!r}; expected a map such as {{'out': 'corpus/wiki'}}.")
    values: dict[str, str] = {}
    for word in [given] if isinstance(given, str) else given:
        name, sign, value = str(word).partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise UsageError(f"--set {word!r}; expected NAME=VALUE, such as --set out=corpus/wiki.")
        if name in values:
            raise UsageError(f"--set gives {name!r} twice; expected each variable once.")
        values[name] = value
    return values


def _spelled(name: object, value: object) -> str:
    if value is None or isinstance(value, str | int | float | os.PathLike):
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    raise UsageError(f"variables[{name!r}]={value!r}; expected a text, a number or a truth value.")


# ------------------------------------------------------------------------------------------------ what only verbs know

_CHECKS = {
    "cluster": "dolma_dask.clusters.profiles:read_profile",
    "taggers": "dolma_dask.taggers.registry:get_tagger",
    "where": "dolma_dask.rules.where:parse",
    "mapping": "dolma_dask.sources.mapping:preset",
}


def check_stages(
    file: str,
    stages: Sequence[StagePlan],
    every: Sequence[StagePlan],
    given: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Refuse unknown names, rules that cannot be parsed, options that cannot be or exclude each other, and files that are not there and that none of `every` stage writes.

    Options that are `given` for the run count before those of a stage.

    Raises `UsageError`: with all mistakes.
    """
    mistakes = Mistakes(file)
    made = [url for stage in every for url in stage.writes]
    for stage in stages:
        if stage.entry.needs:
            require(stage.entry.needs, f"{file}: stage {stage.name!r}")
        try:
            stage.check(given)
        except UsageError as error:
            named = re.match(r"\w+(?==)", str(error))
            mistakes.add(stage.nodes.get(named[0] if named else "", stage.at), f"{stage.verb}: {error}")
        for name, values in stage.arguments.items():
            for value in values if isinstance(values, list) else [] if values is None else [values]:
                try:
                    _check_value(name, value, stage)
                except UsageError as error:
                    mistakes.add(stage.node_of(name, values), f"{stage.verb}.{name}: {error}")
        for name in stage.entry.files:
            for url in stage.given([name]):
                if not any(is_in(absolute(url), folder) for folder in made) and not _is_there(name, url):
                    mistakes.add(
                        stage.node_of(name, url), f"{stage.verb}.{name}: {url}: there is no such file."
                    )
    mistakes.check()


def _check_value(name: str, value: Any, stage: StagePlan) -> None:
    if name in _CHECKS:
        load(_CHECKS[name])(value)
    elif name == "function":
        load("dolma_dask.functions.calls:user_function")(
            value, ("text" if stage.verb == "transform" else "record",)
        )
    elif name in ("include", "exclude"):
        syntax = stage.arguments.get("syntax", "jsonpath")
        load("dolma_dask.rules.filters:check_expression")(value, syntax)
    elif name == "replace" and isinstance(value, Mapping):
        load("dolma_dask.rules.replacements:make_replacement")(value)
    elif name in ("ragged", "hdf5"):
        if not isinstance(value, Mapping):
            raise UsageError(
                f"{value!r}; expected a map with the options of {name}: {{to: FOLDER, tokenizer: FILE}}."
            )
        load("dolma_dask.verbs.mix.tokens:token_options")(**{"ragged": None, "hdf5": None, name: value})


def _is_there(name: str, url: str) -> bool:
    """Tell whether a file is there; a tokenizer may be named by its folder, or be given as text."""
    if name != "tokenizer":
        return files.stat(files.normalize(url)) is not None
    return url.lstrip().startswith("{") or find_tokenizer(url) is not None
