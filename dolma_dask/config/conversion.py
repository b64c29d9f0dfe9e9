"""Texts of a YAML file -> values of options, by the type that the option has; nothing is guessed."""

import math
import re
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from dolma_dask.config.variables import near
from dolma_dask.config.yaml_nodes import Items, Mistakes, Node, Pairs, Scalar

_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*(_[0-9]+)*)")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_TRUTH = {"true": True, "false": False}
_ALMOST_TRUTH = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}

FAILED = object()
"""Stands for a value that could not be converted; the mistake is noted."""


def convert_value(node: Node, hint: Any, what: str, mistakes: Mistakes, maps: bool = False) -> Any:
    """Return the value of an option.

    Parameters
    ----------
    node : Node
        What was written.
    hint : type
        Of the option, in words (`dolma_dask.config.arguments.in_words`).
    what : str
        Name of the option, for messages.
    mistakes : Mistakes
        Gets what is wrong.
    maps : bool
        A map, or a list of maps, is a value too.

    Returns
    -------
    object
        `FAILED` after a mistake.
    """
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if maps and _is_of_maps(node):
        is_alone = isinstance(node, Pairs) and any(get_origin(choice) is Sequence for choice in choices)
        return [natural(node)] if is_alone else natural(node)
    if isinstance(node, Scalar) and node.is_nothing:
        if NoneType in choices:
            return None
        return _wrong(node, what, _expected(choices[0]), mistakes)
    named = [choice for choice in choices if choice is not NoneType]
    if isinstance(node, Scalar) and len(named) > 1:
        return _any_of(node, named, what, mistakes)
    return _convert(node, named[0], what, mistakes)


def _is_of_maps(node: Node) -> bool:
    if isinstance(node, Items):
        return bool(node.items) and all(isinstance(item, Pairs) for item in node.items)
    return isinstance(node, Pairs)


def natural(node: Node) -> Any:
    """Return what a node means where nothing tells its type: a number, true or false, nothing, else the text."""
    if isinstance(node, Items):
        return [natural(item) for item in node.items]
    if isinstance(node, Pairs):
        return {key: natural(value) for key, value in node.values.items()}
    if node.is_nothing:
        return None
    values = (read(node) for read in (_truth, _whole, _number, _text))
    return next(value for value in values if value is not FAILED)


def _any_of(node: Scalar, choices: Sequence[Any], what: str, mistakes: Mistakes) -> Any:
    """Return the value by the first type that fits."""
    for choice in choices:
        value = _convert(node, choice, what, Mistakes(mistakes.file))
        if value is not FAILED:
            return value
    return _wrong(node, what, " or ".join(map(_expected, choices)), mistakes)


def _convert(node: Node, kind: Any, what: str, mistakes: Mistakes) -> Any:
    if get_origin(kind) is Sequence:
        items = node.items if isinstance(node, Items) else (node,)
        (inner,) = get_args(kind)
        values = [_convert(item, inner, what, mistakes) for item in items]
        return FAILED if FAILED in values else values
    if not isinstance(node, Scalar):
        return _wrong(node, what, _expected(kind), mistakes)
    if get_origin(kind) is Literal:
        return _choice(node, get_args(kind), what, mistakes)
    value = _READERS.get(kind, _text)(node)
    return _wrong(node, what, _expected(kind), mistakes) if value is FAILED else value


def _choice(node: Scalar, choices: Sequence[Any], what: str, mistakes: Mistakes) -> Any:
    for choice in choices:
        if node.text == str(choice):
            return choice
    mistakes.add(
        node.place, f"{what}: {node.text!r}; {near(node.text, [str(choice) for choice in choices], '')}"
    )
    return FAILED


def _text(node: Scalar) -> Any:
    """Numbers, dates and words such as ``no`` are the text that was written; true and nothing are not."""
    return FAILED if node.plain and (node.text.lower() in _TRUTH or node.is_nothing) else node.text


def _whole(node: Scalar) -> Any:
    return int(node.text) if node.plain and _WHOLE.fullmatch(node.text) else FAILED


def _number(node: Scalar) -> Any:
    if not node.plain or not _NUMBER.fullmatch(node.text):
        return FAILED
    value = float(node.text)
    return value if math.isfinite(value) else FAILED


def _truth(node: Scalar) -> Any:
    return _TRUTH.get(node.text.lower(), FAILED) if node.plain else FAILED


_READERS: dict[Any, Any] = {str: _text, int: _whole, float: _number, bool: _truth}
_NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def _expected(kind: Any) -> str:
    if get_origin(kind) is Sequence:
        return "a list of texts"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return _NAMES.get(kind, "a text")


def _wrong(node: Node, what: str, expected: str, mistakes: Mistakes) -> Any:
    mistakes.add(node.place, f"{what}: {_found(node)}; expected {expected}{_advice(node, expected)}.")
    return FAILED


def _found(node: Node) -> str:
    if isinstance(node, Scalar):
        if node.is_nothing:
            return "nothing"
        return node.text if node.plain else repr(node.text) + " in quotes"
    return "a list" if isinstance(node, Items) else "a map"


def _advice(node: Node, expected: str) -> str:
    """Say how to write what was probably meant."""
    if isinstance(node, Pairs | Items):
        return ""
    if expected == "true or false" and node.text.lower() in _ALMOST_TRUTH:
        return f" (write {_ALMOST_TRUTH[node.text.lower()]})"
    if expected == "a whole number" and node.plain and _NUMBER.fullmatch(node.text):
        value = float(node.text)
        return f" (write {int(value)})" if value.is_integer() else ""
    if expected == "a text" and node.plain and not node.is_nothing:
        return f' (in quotes if it is one: "{node.text}")'
    return ""
