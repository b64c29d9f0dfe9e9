"""YAML as it was written: texts, lists and maps with their lines, before anything is taken for a number or a truth value.

Values get their types from the options they are given to (`conversion`), not from YAML's own guesses: ``no`` stays a word, ``1.10`` a
version, ``2019-01-01`` a text. Keys given twice, tabs, tags and merge keys are errors with their line and column.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml  # type: ignore[import-untyped]

from dolma_dask.errors import UsageError
from dolma_dask.io import files

MOST_MISTAKES = 20
"""Mistakes of a file that a message shows."""

MOST_BYTES = 10_000_000
"""Size of a configuration file; a larger one is something else."""


@dataclass(frozen=True)
class Place:
    """Where something stands in a file; counted from 1, 0 outside of it.

    Attributes
    ----------
    line, column : int
        Of its first character.
    """

    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: " if self.line else ""


@dataclass(frozen=True)
class Scalar:
    """A text as it stands in the file.

    Attributes
    ----------
    text : str
        Without quotes.
    plain : bool
        It was written without quotes, so that it may mean a number, a truth value or nothing.
    place : Place
        Where.
    """

    text: str
    plain: bool = True
    place: Place = field(default_factory=Place)

    @property
    def is_nothing(self) -> bool:
        """Whether it means that there is no value."""
        return self.plain and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple["Node", ...]
    place: Place = field(default_factory=Place)


@dataclass(frozen=True)
class Pairs:
    """A map; ``keys`` tells where each key stands."""

    values: Mapping[str, "Node"]
    keys: Mapping[str, Place]
    place: Place = field(default_factory=Place)


Node = Scalar | Items | Pairs


class Mistakes:
    """Collects what is wrong with a file, so that all of it is told at once.

    Parameters
    ----------
    file : str
        Its path or URL.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._found: dict[tuple[int, int, str], None] = {}

    def add(self, place: Place, text: str) -> None:
        """Note a mistake; the same one is noted once."""
        self._found[place.line, place.column, text] = None

    def __bool__(self) -> bool:
        return bool(self._found)

    def check(self) -> None:
        """Raise if there is any.

        Raises
        ------
        UsageError
            With the place of each, in the order of the file.
        """
        if not self._found:
            return
        lines = [f"{Place(line, column)}{text}" for line, column, text in sorted(self._found)]
        if len(lines) == 1:
            raise UsageError(f"{self.file}, {lines[0]}", file=self.file, mistakes=tuple(lines))
        shown = lines[:MOST_MISTAKES] + (
            [f"and {len(lines) - MOST_MISTAKES:,} more"] if len(lines) > MOST_MISTAKES else []
        )
        raise UsageError(
            "\n".join([f"{self.file} has {len(lines):,} mistakes:", *(f"  {line}" for line in shown)]),
            file=self.file,
            mistakes=tuple(lines),
        )


def read_yaml(url: str, mistakes: Mistakes) -> Node:
    """Read one YAML document.

    Parameters
    ----------
    url : str
        Path or URL.
    mistakes : Mistakes
        Gets keys that stand twice, tags and the like, after which reading goes on.

    Raises
    ------
    UsageError
        There is no such file, it is no UTF-8, or no YAML; with line and column.
    """
    return _node(_compose(_text(url), mistakes), mistakes, ())


def _text(url: str) -> str:
    info = files.stat(files.normalize(url))
    if info is None:
        raise UsageError(
            f"{url}: there is no such file; expected a pipeline in YAML, such as configs/wiki.yaml."
        )
    if info.bytes > MOST_BYTES:
        raise UsageError(f"{url} has {info.bytes:,} bytes; expected a pipeline in YAML of a few lines.")
    try:
        return files.read_bytes(files.normalize(url)).decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{url}: byte {error.start} is not UTF-8; expected a YAML file in UTF-8. Save it as such."
        ) from error


def _compose(text: str, mistakes: Mistakes) -> yaml.Node:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark else Place(1, 1)
        mistakes.add(place, _readable(error, text.splitlines(), place))
    except yaml.YAMLError as error:  # a character that YAML does not allow
        mistakes.add(Place(1, 1), " ".join(str(error).split()))
    else:
        if node is not None:
            return node
        mistakes.add(Place(1, 1), "the file is empty; expected `stages:` with a list of verbs.")
    mistakes.check()
    raise AssertionError  # pragma: no cover


def _readable(error: yaml.MarkedYAMLError, lines: list[str], place: Place) -> str:
    """Say what is wrong with the YAML in words of whoever writes it."""
    problem = error.problem or "no YAML"
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    if "\\t" in problem or line[: place.column].strip(" ") == "\t":
        return "a tab before the text; YAML indents by spaces only. Replace the tab by spaces."
    if "${" in line and ("got '{'" in problem or "got '}'" in problem):
        return 'inside of [ ] or { } a variable needs quotes, such as ["${out}/v0"].'
    if "mapping values are not allowed" in problem:
        return (
            'a colon where none can be. A text with ": " in it needs quotes; else look at how far this line and the one before are '
            "indented."
        )
    if "but found another document" in problem:
        return "a second document begins here (---); expected one pipeline per file."
    context = f" {error.context}" if error.context else ""
    return f"{problem}{context}. Look at the indentation, quotes and brackets here."


def _node(node: yaml.Node, mistakes: Mistakes, above: tuple[int, ...]) -> Node:
    place = Place(node.start_mark.line + 1, node.start_mark.column + 1)
    if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
        mistakes.add(place, f"the tag {node.tag!r}; expected plain values without tags.")
    if id(node) in above:
        mistakes.add(place, "a list or map that contains itself.")
        return Scalar("", place=place)
    if isinstance(node, yaml.SequenceNode):
        return Items(tuple(_node(item, mistakes, (*above, id(node))) for item in node.value), place)
    if isinstance(node, yaml.MappingNode):
        return _pairs(node.value, place, mistakes, (*above, id(node)))
    return Scalar(node.value, node.style is None, place)


def _pairs(pairs: Any, place: Place, mistakes: Mistakes, above: tuple[int, ...]) -> Pairs:
    values: dict[str, Node] = {}
    keys: dict[str, Place] = {}
    for key_node, value_node in pairs:
        key = _node(key_node, mistakes, above)
        if not isinstance(key, Scalar):
            mistakes.add(key.place, "a list or map as a key; expected a name.")
            continue
        if key.plain and key.text == "<<":
            mistakes.add(
                key.place, "merge keys (<<) are not known here; put shared options under `defaults:`."
            )
            continue
        if key.text in keys:
            mistakes.add(
                key.place,
                f"{key.text!r} stands twice; first in line {keys[key.text].line}. Remove one of them.",
            )
            continue
        keys[key.text] = key.place
        values[key.text] = _node(value_node, mistakes, above)
    return Pairs(values, keys, place)


def moved(node: Node, place: Place) -> Node:
    """Return a node as if it stood somewhere else."""
    return replace(node, place=place)
