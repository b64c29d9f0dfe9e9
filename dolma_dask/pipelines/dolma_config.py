"""Configurations of the Dolma toolkit as values: from a YAML or JSON file, from words such as ``--dedupe.documents.key $.text``, which count more, or both.

Options of the command here may stand among the words (``--on-bad-record quarantine``): they keep their meaning.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from msgspec import Struct
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from dolma_dask.display import near_or_all
from dolma_dask.errors import UsageError
from dolma_dask.io.patterns import matches
from dolma_dask.io.yaml_files import Mistakes, References, convert, is_nothing, pairs, read_yaml, scalar
from dolma_dask.options.base import checked
from dolma_dask.pipelines.dolma_rows import OPTION, Leaf, find_leaf, leaves
from dolma_dask.pipelines.signatures import command_of, read_options, spellings

CONFIGURATION = "a configuration of the Dolma toolkit in YAML or JSON"
"""Description of the file, for errors about one that is something else."""

_MAP, _LIST = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


class Given(Struct):
    """What a call of a command of the toolkit says."""

    config: Any  # the record of its options
    names: frozenset[str]  # options that were given
    places: Sequence[str]  # words without a name
    own: Mapping[str, Any]  # options of the command here
    node: Node
    mistakes: Mistakes

    def wrong(self, name: str, text: str) -> NoReturn:
        """Raise `UsageError` about the value of an option, with its place in the file."""
        self.mistakes.stop(place_of(self.node, name), f"{name}: {text}")

    def leaves(self) -> Iterator[tuple[Leaf, Any]]:
        """Yield the options that were given, with their values; those of streams are left out."""
        for leaf in leaves(type(self.config)):
            if leaf.name in self.names:
                yield leaf, self.value(leaf.name)

    def value(self, name: str) -> Any:
        """Return the value of an option."""
        value = self.config
        for step in name.split("."):
            value = getattr(value, step)
        return value

    def options(self) -> dict[str, Any]:
        """Return the options of the command here that follow from those that were given, one by one."""
        made = {
            leaf.row.to: leaf.row.value(value) if leaf.row.value else value
            for leaf, value in self.leaves()
            if leaf.row.to
        }
        return {name: value for name, value in made.items() if value not in (None, [])}

    def check_values(self, verb: Any) -> None:
        """Refuse values that the options of the command here cannot have, by the names and places that they were given."""
        known = {field.name: field for field in command_of(verb).fields}
        for leaf, value in self.leaves():
            to, make = leaf.row.to, leaf.row.value
            if to not in known or value in (None, []):
                continue
            try:
                checked(known[to], make(value) if make else value)
            except UsageError as error:
                self.wrong(leaf.name, str(error).removeprefix(f"{to}="))

    def notes(self) -> list[str]:
        """Return notes about options that were given and change nothing."""
        why: dict[str, list[str]] = {}
        for leaf, value in self.leaves():
            if leaf.row.is_idle and value not in (leaf.default, None):
                why.setdefault(leaf.row.here, []).append(leaf.name)
        return [f"{', '.join(names)}: {reason}" for reason, names in why.items()]


def place_of(node: Node, name: str) -> Node | None:
    """Return the value of an option in a file, such as ``streams[0].name``; None: it is not there by itself."""
    at: Node | None = node
    for step in re.findall(r"[^.\[\]]+", name):
        if isinstance(at, MappingNode):
            at = pairs(at)[step][1] if step in pairs(at) else None
        elif isinstance(at, SequenceNode) and step.isdecimal() and int(step) < len(at.value):
            at = at.value[int(step)]
        else:
            at = None
    return at


def read(kind: type[Struct], words: Sequence[str], file: str | None, verb: Any, name: str) -> Given:
    """Read the options of a command: those of `words`, then those of a file; `verb` is the command here whose options count too.

    Raises `UsageError`: with all mistakes, where they are, and the nearest valid names.
    """
    mistakes = Mistakes(file or f"dolma-dask {name}")
    node = MappingNode(_MAP, []) if file is None else read_yaml(file, mistakes, CONFIGURATION)
    options, ours, places = _apart(kind, words, verb, name)
    own = read_options(verb, ours)
    for option, values in options.items():
        _put(node, option, values, kind, mistakes)
    mistakes.check()
    config = converted(node, kind, mistakes)
    given = Given(config, frozenset(_names(node)), places, own, node, mistakes)
    given.check_values(verb)
    return given


def converted(node: Node, kind: type[Struct], mistakes: Mistakes) -> Any:
    """Return the record of a configuration, references replaced; raise `UsageError` with all mistakes."""
    values = convert(ToolkitReferences(node, mistakes).resolve(node), kind, "", mistakes, lax=True)
    mistakes.check()
    return values


def node_of(value: object) -> Node:
    """Return a value from Python as if it stood in a file."""
    if isinstance(value, Mapping):
        return MappingNode(_MAP, [(scalar(str(key)), node_of(item)) for key, item in value.items()])
    if isinstance(value, Sequence) and not isinstance(value, str):
        return SequenceNode(_LIST, list(map(node_of, value)))
    is_text = isinstance(value, str | os.PathLike)
    return scalar("null" if value is None else str(value), quoted=is_text)


# ------------------------------------------------------------------------------------------------ words


def _apart(
    kind: type[Struct], words: Sequence[str], verb: Any, name: str
) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Return the values of the toolkit's options by name, the words of our own options, and words without a name."""
    options: dict[str, list[str]] = {}
    ours: list[str] = []
    places: list[str] = []
    here = places
    own = set(spellings(verb).values())
    for word in words:
        if not OPTION.match(word):
            here.append(word)
            continue
        option, has_value, value = word.partition("=")
        found = find_leaf(kind, option)
        if found is None:
            if not {option, option.replace("--no-", "--", 1)} & own:
                every = [f"--{leaf.name}" for leaf in leaves(kind)]
                raise UsageError(
                    f"dolma-dask {name}: unknown option {option}; {near_or_all(option, [*every, *sorted(own)])}"
                )
            here = ours
            here.append(word)
            continue
        full, leaf, is_no = found
        here = options.setdefault(full, [])
        here[:] = [value] if has_value else []
        if leaf.hint is bool and not has_value:
            here[:], here = ["false" if is_no else "true"], places
    return options, ours, places


def _put(node: Node, name: str, values: Sequence[str], kind: type[Struct], mistakes: Mistakes) -> None:
    """Put the words of an option into a configuration, over what stands there."""
    found = find_leaf(kind, name)
    is_list = found is not None and found[1].kind == "list"
    if len(values) > 1 and not is_list:
        mistakes.add(None, f"--{name} takes one value; expected it alone, not {' '.join(values)!r}.")
    items = [scalar(value, quoted=not value) for value in values]
    value = SequenceNode(_LIST, items) if is_list else items[0] if items else scalar("null")
    steps = name.split(".")
    for step, after in zip(steps, [*steps[1:], ""], strict=True):
        new = value if not after else SequenceNode(_LIST, []) if after.isdigit() else MappingNode(_MAP, [])
        inside = _entered(node, step, new, is_last=not after)
        if inside is None:
            mistakes.add(
                None, f"--{name}: {step} is not there; expected a place in the file, counted from 0."
            )
            return
        node = inside


def _entered(node: Node, step: str, new: Node, is_last: bool) -> Node | None:
    """Return the value at a key or place, where `new` is put if nothing was there or it is the last; None if there is no such place."""
    if isinstance(node, MappingNode):
        known = pairs(node)
        if step in known and not is_last and not is_nothing(known[step][1]):
            return known[step][1]
        node.value = [pair for pair in node.value if pair[0].value != step]
        node.value.append((scalar(step), new))
        return new
    if not isinstance(node, SequenceNode) or not step.isdecimal() or int(step) > len(node.value):
        return None
    if int(step) == len(node.value):
        node.value.append(new)
    elif is_last:
        node.value[int(step)] = new
    return node.value[int(step)]


def _names(node: Node, above: str = "") -> Iterator[str]:
    """Yield the full names of the options in a configuration that have a value."""
    if isinstance(node, MappingNode):
        for name, (_, value) in pairs(node).items():
            yield from _names(value, f"{above}.{name}" if above else name)
    elif not is_nothing(node):
        yield above


# ------------------------------------------------------------------------------------------------ references


_NESTED = re.compile(r"\$\{[^{}]*\$\{")
_OPEN = re.compile(r"(?<!\\)\$\{")


class ToolkitReferences(References):
    """Replaces references as OmegaConf writes them: ``${streams[0].name}``, ``${.name}``, ``${oc.env:OUT,out}``, ``${d.processes:2}``."""

    pattern = re.compile(r"\$\{([^${}]+)\}")

    def __init__(self, root: Node, mistakes: Mistakes) -> None:
        super().__init__(mistakes)
        self.root = root

    def resolve(self, node: Node, path: tuple[str, ...] = ()) -> Node:
        """Return a node with all references replaced, those within references first."""
        if isinstance(node, ScalarNode) and _OPEN.search(self._without_closed(node.value)):
            expected = "expected it closed by }, such as ${streams[0].name}."
            return self.wrong(node, f"{node.value!r}: a reference that cannot be read; {expected}")
        made = super().resolve(node, path)
        is_nested = isinstance(node, ScalarNode) and _NESTED.search(node.value)
        return self.resolve(made, path) if is_nested and made.value != node.value else made

    def _without_closed(self, text: str) -> str:
        """Return a text with a sign in place of each reference, those within others first."""
        count = 1
        while count:
            text, count = self.pattern.subn("_", text)
        return text

    def find(self, match: re.Match[str], node: Node, path: tuple[str, ...]) -> Node:
        """Return the value at a path of the file, or what a resolver returns."""
        reference = match[1].strip()
        resolver, colon, argument = reference.partition(":")
        if colon:
            return self._call(resolver.strip(), argument.strip(), node)
        steps = re.findall(r"[^.\[\]]+", reference)
        up = len(reference) - len(reference.lstrip("."))
        way = (*path[: len(path) - up], *steps) if up else tuple(steps)
        value = self._at(way)
        found = value and self.follow(way, value, way)
        if found is not None:
            return found
        why = "leads to nothing" if value is None else "leads back to itself"
        expected = "expected the path of a value, such as ${streams[0].name}."
        return self.wrong(node, f"{match[0]} {why}; {expected}")

    def _at(self, way: Sequence[str]) -> Node | None:
        return place_of(self.root, ".".join(way))

    def _call(self, resolver: str, argument: str, node: Node) -> Node:
        if resolver in ("oc.env", "env"):
            name, comma, otherwise = map(str.strip, argument.partition(","))
            value = os.environ.get(name, otherwise if comma else None)
            if value is not None:
                return scalar(value, node)
            expected = f"set it, or write ${{oc.env:{name},otherwise}}."
            return self.wrong(node, f"the environment variable {name} is not set; {expected}")
        if resolver == "d.processes":
            if not (argument or "0").isdecimal() or len(argument) > 9:
                return self.wrong(
                    node,
                    f"${{d.processes:{argument}}}; expected how many processors are left free, such as 2.",
                )
            return scalar(str(max(1, (os.cpu_count() or 1) - int(argument or 0))), node)
        if resolver == "d.cache":  # all that is read may lie anywhere
            return scalar(argument, node)
        if resolver == "d.glob":
            found = [scalar(url, node, quoted=True) for url, _ in matches(argument)]
            start = getattr(node, "start_mark", None)
            if found:
                return SequenceNode(_LIST, found, start)
            return self.wrong(
                node, f"no file matches {argument!r}; expected a pattern of files that are there."
            )
        known = "a path, oc.env:NAME, d.glob:PATTERN, d.cache:URL or d.processes:N"
        return self.wrong(node, f"${{{resolver}:...}} is not known here; expected {known}.")
