"""YAML files by PyYAML's nodes: mistakes with line and column, references of the form ``${...}``, and values of the types that are expected.

Types come from what a value is for, not from YAML's guesses: for a text ``no`` stays a word, ``1.10`` a version, ``2019-01-01`` a date.
"""

import copy
import itertools
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, NoReturn, Union, get_args, get_origin

import msgspec
import yaml
from yaml import MappingNode, Node, ScalarNode, SequenceNode

from dolma_dask.display import listed, near_or_all
from dolma_dask.errors import UsageError
from dolma_dask.io import files

MAX_MISTAKES = 20
"""Mistakes of a file that a message shows."""

MAX_BYTES = 10_000_000
"""Size of a configuration file; a larger one is something else."""

MAX_VALUES = 200_000
"""Values of a configuration, those of anchors and references counted wherever they stand."""

MAX_DEPTH = 40
"""Levels of lists, maps and references within each other."""

MAX_CHARACTERS = 1_000_000
"""Length of a text into which references were put."""

PIPELINE = "a pipeline in YAML, such as those in the folder configs of the repository"
"""Description in messages of the file that is expected."""

FAILED = object()
"""Stands for a value that could not be converted; the mistake is recorded."""


class Mistakes:
    """Collects what is wrong with a file, so that all of it is reported at once; `file` is its path, for messages."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._lines: dict[tuple[int, int, str], None] = {}

    def add(self, at: Any, text: str) -> None:
        """Record a mistake, at a node or mark, or None outside of the file; the same one is recorded once."""
        mark = getattr(at, "start_mark", at)
        self._lines[(mark.line + 1, mark.column + 1, text) if mark else (0, 0, text)] = None

    def stop(self, at: Any, text: str) -> NoReturn:
        """Record a mistake after which nothing can be read, and raise all."""
        self.add(at, text)
        self.check()
        raise AssertionError("check raises")

    def check(self) -> None:
        """Raise UsageError with the position of each mistake, in the order of the file, if there is any."""
        if not self._lines:
            return
        lines = [
            f"line {line}, column {column}: {text}" if line else text
            for line, column, text in sorted(self._lines)
        ]
        if len(lines) == 1:
            raise UsageError(f"{self.file}, {lines[0]}", file=self.file, mistakes=tuple(lines))
        more = len(lines) - MAX_MISTAKES
        shown = [*lines[:MAX_MISTAKES], *([f"and {more:,} more"] if more > 0 else [])]
        message = "\n  ".join([f"{self.file} has {len(lines):,} mistakes:", *shown])
        raise UsageError(message, file=self.file, mistakes=tuple(lines))


# ------------------------------------------------------------------------------------------------ reading


def read_yaml(url: str, mistakes: Mistakes, what: str = PIPELINE) -> Node:
    """Read one YAML document; without aliases to itself, keys given twice and tags. Merge keys (``<<``) are merged.

    Raises `UsageError`: there is no such file, it is no UTF-8, or no such YAML; with line and column.
    """
    text = _text(url, what)
    start = yaml.Mark(url, 0, 0, 0, None, None)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark or start
        mistakes.add(mark, _readable(error, text.splitlines(), mark))
    except yaml.YAMLError as error:  # a character that YAML does not allow
        mistakes.add(start, " ".join(str(error).split()))
    except RecursionError:
        mistakes.add(start, _TOO_DEEP)
    else:
        if node is None:
            mistakes.add(
                start,
                "the file is empty; expected `stages:` with a list of verbs."
                if what == PIPELINE
                else f"the file is empty; expected {what}.",
            )
        else:
            _check(node, mistakes, (), itertools.count())
    mistakes.check()
    return node


def _text(url: str, what: str) -> str:
    info = files.stat(files.normalize(url))
    if info is None:
        is_folder = files.is_local(url) and files.local_path(url).is_dir()
        found = "it is a folder" if is_folder else "there is no such file"
        raise UsageError(f"{url}: {found}; expected {what}.")
    if info.bytes > MAX_BYTES:
        raise UsageError(f"{url} has {info.bytes:,} bytes; expected {what}, with a few lines.")
    try:
        text = files.read_bytes(files.normalize(url)).decode()
        # in JSON a tab is never part of a text
        return text.replace("\t", " ") if url.endswith(".json") else text
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{url}: byte {error.start} is not UTF-8; expected a YAML file in UTF-8. Save it as such."
        ) from error


def _readable(error: yaml.MarkedYAMLError, lines: list[str], mark: yaml.Mark) -> str:
    """Say what is wrong with the YAML in words of whoever writes it."""
    problem = error.problem or "no YAML"
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\\t" in problem or line[: mark.column + 1].strip(" ") == "\t":
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


_TOO_DEEP = f"lists or maps in more than {MAX_DEPTH} levels; expected a configuration as people write it."
_TOO_MANY = f"more than {MAX_VALUES:,} values, those of anchors and references counted wherever they stand; expected fewer."


def _check(node: Node, mistakes: Mistakes, above: tuple[Node, ...], numbers: Iterator[int]) -> None:
    """Refuse what YAML knows and configurations do not."""
    if next(numbers) > MAX_VALUES:
        mistakes.stop(node, _TOO_MANY)
    if len(above) > MAX_DEPTH:
        mistakes.stop(node, _TOO_DEEP)
    if not node.tag.startswith("tag:yaml.org,2002:") or "python" in node.tag:
        mistakes.add(node, f"the tag {node.tag!r}; expected plain values without tags.")
    if any(node is other for other in above):
        mistakes.add(node, "a list or map that contains itself.")
    elif isinstance(node, ScalarNode):
        _join_surrogates(node, mistakes)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            _check(item, mistakes, (*above, node), numbers)
    elif isinstance(node, MappingNode):
        _merge(node, mistakes, above)
        seen: dict[str, Node] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                mistakes.add(key, "a list or map as a key; expected a name.")
            elif key.value in seen:
                first = seen[key.value].start_mark.line + 1
                mistakes.add(key, f"{key.value!r} stands twice; first in line {first}. Remove one of them.")
            else:
                seen[key.value] = key
            for child in (key, value):
                _check(child, mistakes, (*above, node), numbers)


def _join_surrogates(node: ScalarNode, mistakes: Mistakes) -> None:
    r"""Join the halves of characters that JSON writes as two escapes, ``\ud83d\ude00``, and YAML takes for two characters; refuse one alone."""
    if any("\ud800" <= character <= "\udfff" for character in node.value):
        try:
            node.value = node.value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            mistakes.add(node, f"{node.value!a}: half of a character; expected both of its escapes.")


def _merge(node: MappingNode, mistakes: Mistakes, above: tuple[Node, ...]) -> None:
    """Put what stands behind ``<<``, a map or a list of them, into a map, whose own keys count more, and then those of the first."""
    merged = [value for key, value in node.value if _is_merge(key)]
    if not merged:
        return
    node.value = [pair for pair in node.value if not _is_merge(pair[0])]
    known = {key.value for key, _ in node.value if isinstance(key, ScalarNode)}
    for one in (
        one for value in merged for one in (value.value if isinstance(value, SequenceNode) else [value])
    ):
        if any(one is other for other in (*above, node)):
            mistakes.add(one, "a list or map that contains itself.")
        elif not isinstance(one, MappingNode):
            mistakes.add(one, "<< merges maps; expected one, such as *name of a map with the anchor &name.")
        else:
            _merge(one, mistakes, (*above, node))
            new = [
                (key, value)
                for key, value in one.value
                if isinstance(key, ScalarNode) and key.value not in known
            ]
            node.value += new
            known |= {key.value for key, _ in new}


def _is_merge(key: Node) -> bool:
    return isinstance(key, ScalarNode) and key.style is None and key.value == "<<"


def pairs(node: Node) -> dict[str, tuple[Node, Node]]:
    """Return the nodes of keys and values of a map, by key."""
    return {key.value: (key, value) for key, value in node.value}


def is_nothing(node: Node) -> bool:
    """Tell whether a node means that there is no value."""
    is_plain = isinstance(node, ScalarNode) and node.style is None
    return is_plain and node.value in ("", "~", "null", "Null", "NULL")


def scalar(text: str, at: Node | None = None, quoted: bool = False) -> Node:
    """Return a text as if it stood where `at` is."""
    mark = getattr(at, "start_mark", None)
    return ScalarNode("tag:yaml.org,2002:str", text, mark, mark, '"' if quoted else None)


# ------------------------------------------------------------------------------------------------ references


class References:
    """Replaces references; a subclass says how they are written and what each stands for."""

    pattern: ClassVar[re.Pattern[str]]

    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self._open: list[Any] = []  # what is being resolved
        self._resolved = 0  # resolved until now

    def find(self, match: re.Match[str], node: Node, path: tuple[str, ...]) -> Node:
        """Return what a reference stands for, which is in a node to which `path` leads."""
        raise NotImplementedError

    def resolve(self, node: Node, path: tuple[str, ...] = ()) -> Node:
        """Return a node with all references replaced: alone one is the value with its type, within a text it is put in."""
        self._resolved += 1
        if self._resolved > MAX_VALUES:
            self.mistakes.stop(node, _TOO_MANY)
        if isinstance(node, SequenceNode):
            items = [self.resolve(item, (*path, str(at))) for at, item in enumerate(node.value)]
            return SequenceNode(node.tag, items, node.start_mark)
        if isinstance(node, MappingNode):
            values = [(key, self.resolve(value, (*path, key.value))) for key, value in node.value]
            return MappingNode(node.tag, values, node.start_mark)
        alone = self.pattern.fullmatch(node.value)
        if alone:
            value = copy.copy(self.find(alone, node, path))
            value.start_mark = node.start_mark
            return value

        def text(match: re.Match[str]) -> str:
            value = self.find(match, node, path)
            if isinstance(value, ScalarNode):
                return str(value.value)
            why = "is a list or map, which cannot be put into a text; expected it alone."
            self.mistakes.add(node, f"{match[0]} {why}")
            return match[0]

        replaced = self.pattern.sub(text, node.value)
        if len(replaced) > MAX_CHARACTERS:
            self.mistakes.stop(
                node,
                f"a text of more than {MAX_CHARACTERS:,} characters, references replaced; expected less.",
            )
        return scalar(replaced, node, quoted=node.style is not None)

    def follow(self, name: Any, value: Node, path: tuple[str, ...] = ()) -> Node | None:
        """Return a value with all references replaced; None if it is defined by itself, by its name."""
        if name in self._open:
            return None
        if len(self._open) > MAX_DEPTH:
            self.mistakes.stop(
                value, f"references that lead through more than {MAX_DEPTH} others; expected fewer."
            )
        self._open.append(name)
        try:
            return self.resolve(value, path)
        finally:
            self._open.pop()

    def wrong(self, node: Node, text: str) -> Node:
        """Record a mistake; return what stands in for the reference."""
        self.mistakes.add(node, text)
        return scalar("", node, quoted=True)


# ------------------------------------------------------------------------------------------------ types

_TRUTH = {"true": True, "false": False}
_ALMOST_TRUTH = {"yes": True, "on": True, "y": True, "no": False, "off": False, "n": False}
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_MAX_DIGITS = 300
"""Longer numbers are texts: Python refuses to read those of thousands of digits."""

_MISMATCH = re.compile(r"Expected `(.*)`, got `(\w+)`")
_KEY = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a map",
}


def natural(node: Node, lax: bool = False) -> Any:
    """Return what a node means by itself: a number, true or false, nothing, else the text; `lax`: also yes, on, no and off."""
    if isinstance(node, SequenceNode):
        return [natural(item, lax) for item in node.value]
    if isinstance(node, MappingNode):
        return {key.value: natural(value, lax) for key, value in node.value}
    text, word = node.value, node.value.lower()
    if node.style is not None:
        return text
    if is_nothing(node):
        return None
    if word in _TRUTH or (lax and word in _ALMOST_TRUTH):
        return {**_ALMOST_TRUTH, **_TRUTH}[word]
    if _WHOLE.fullmatch(text) and len(text) <= _MAX_DIGITS:
        return int(text)
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else text


def convert(node: Node, hint: Any, what: str, mistakes: Mistakes, lax: bool = False) -> Any:
    """Return the value of an option called `what`, of a type that msgspec knows; `FAILED` after mistakes, all of which are recorded.

    A number is a text where a text is expected, and one value stands for a list of one. `lax`, for files of other tools: quoted numbers and
    the words yes, on, no and off count as what they say, nothing stands for the default, and only lists are lists.
    """
    value, is_right = natural(node, lax), True
    while True:
        try:
            made = msgspec.convert(value, hint, strict=not lax)
            return made if is_right else FAILED
        except msgspec.ValidationError as error:
            reason, _, path = str(error).partition(" - at `$")
        steps = re.findall(r"\w+", path)
        at, kind, name = _follow(node, hint, steps, what)
        mismatch = _MISMATCH.match(reason)
        expected, got = mismatch.groups() if mismatch else ("", "")
        if "str" in expected and (got in ("int", "float") or (lax and got == "bool")):
            value = _replaced(value, steps, at.value)
        elif "array" in expected and got != "null" and not lax:
            value = _replaced(value, steps, [natural(at)])
        elif lax and (expected, got) == ("bool", "str") and at.value.lower() in _ALMOST_TRUTH:
            value = _replaced(value, steps, _ALMOST_TRUTH[at.value.lower()])
        elif lax and got == "null" and steps and not steps[-1].isdigit():
            value = _replaced(value, steps)
        else:  # record the mistake, and go on without the value, or without the list in which it is
            is_right = False
            key = _KEY.match(reason)
            where, text = _mistake(reason, at, kind, name or "the file", lax)
            if text:
                mistakes.add(where, text)
            steps += [key[2]] if key else []
            while steps and steps[-1].isdigit():
                steps.pop()
            if not steps or "missing" in reason:
                return FAILED
            value = _replaced(value, steps)


def _mistake(reason: str, at: Node, kind: Any, name: str, lax: bool) -> tuple[Node, str]:
    """Return where a mistake is, and what msgspec says of it in other words."""
    mismatch, key = _MISMATCH.match(reason), _KEY.match(reason)
    if mismatch:
        kinds = [_KINDS.get(one, "a text") for one in mismatch[1].split(" | ") if one != "null"]
        return at, f"{name}: {_shown(at, lax)}; expected {' or '.join(kinds)}{_advice(at, kinds)}."
    if key and key[1] == "contains unknown":
        path = key[2] if name == "the file" else f"{name}.{key[2]}"
        return pairs(at)[key[2]][
            0
        ], f"{path}: there is no such key; {near_or_all(key[2], kind.__struct_fields__)}"
    if key:
        needed = [one.name for one in msgspec.structs.fields(kind) if one.required]
        missing = [f"`{one}`" for one in needed if one not in pairs(at)]
        if not missing:  # what is wrong with them is recorded
            return at, ""
        return at, f"{name} needs {listed(missing)}, which {'are' if missing[1:] else 'is'} missing."
    words = [str(word) for one in _choices(kind) if get_origin(one) is Literal for word in get_args(one)]
    return at, f"{name}: {at.value!r}; {near_or_all(at.value, words) if words else reason}"


def _choices(hint: Any) -> tuple[Any, ...]:
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _follow(node: Node, hint: Any, steps: Iterable[str], name: str) -> tuple[Node, Any, str]:
    """Return what is at a path, the type that is expected there, and the path in words."""
    for step in steps:
        if step.isdigit():
            (hint,) = (get_args(one)[0] for one in _choices(hint) if get_origin(one) in (list, Sequence))
            if isinstance(node, SequenceNode):  # else one that stands for a list of one
                node, name = node.value[int(step)], f"{name}[{step}]"
        else:
            node, hint, name = (
                pairs(node)[step][1],
                hint.__annotations__[step],
                f"{name}.{step}".removeprefix("."),
            )
    return node, hint, name


def convert_options(
    node: Node,
    hints: Mapping[str, Any],
    needed: Container[str],
    what: str,
    mistakes: Mistakes,
    lax: bool = False,
) -> dict[str, Any]:
    """Return the values of a map of options, those that are given; see `convert`."""
    fields = [(name, hint) if name in needed else (name, hint, msgspec.UNSET) for name, hint in hints.items()]
    kind = msgspec.defstruct("Options", fields, kw_only=True, forbid_unknown_fields=True)
    made = convert(node, kind, what, mistakes, lax)
    return {} if made is FAILED else msgspec.to_builtins(made)


def _replaced(value: Any, steps: Sequence[str], *by: Any) -> Any:
    """Return a value with another one at a path, or with nothing there."""
    if not steps:
        return by[0]
    holder = value
    for step in steps[:-1]:
        holder = holder[int(step)] if isinstance(holder, list) else holder[step]
    last: Any = int(steps[-1]) if isinstance(holder, list) else steps[-1]
    if by:
        holder[last] = by[0]
    else:
        del holder[last]
    return value


def _shown(node: Node, lax: bool) -> str:
    if not isinstance(node, ScalarNode):
        return "a list" if isinstance(node, SequenceNode) else "a map"
    if node.style is not None:
        return repr(node.value) if lax else f"{node.value!r} in quotes"
    return "nothing" if is_nothing(node) else str(node.value)


def _advice(node: Node, kinds: Sequence[str]) -> str:
    """Say how to write what was probably meant."""
    if not isinstance(node, ScalarNode) or is_nothing(node):
        return ""
    text, expected = node.value, kinds[0]
    if expected == "true or false" and text.lower() in _ALMOST_TRUTH:
        return f" (write {str(_ALMOST_TRUTH[text.lower()]).lower()})"
    if expected == "a whole number" and node.style is None and isinstance(natural(node), float):
        return f" (write {int(float(text))})" if float(text).is_integer() else ""
    return f' (in quotes if it is one: "{text}")' if expected == "a text" else ""
