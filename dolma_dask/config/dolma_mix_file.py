"""The keys of the Dolma toolkit's mixer configuration, and what their values are; everything else is told with its line and the nearest key."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from dolma_dask.config.interpolation import Interpolation
from dolma_dask.config.variables import near
from dolma_dask.config.yaml_nodes import Items, Mistakes, Node, Pairs, Place, Scalar, read_yaml

_OUTPUT = {
    "path": "text",
    "max_size_in_bytes": "whole",
    "discard_fields": "texts",
    "min_text_length": "whole",
}
_FILTER = {"include": "texts", "exclude": "texts", "syntax": "text"}
_SPAN = {
    "span": "text",
    "min_score": "number",
    "max_score": "number",
    "replacement": "text",
    "syntax": "text",
}
_COMPRESSION = {"input": "text", "output": "text"}
_STREAM: dict[str, Any] = {
    "name": "text",
    "documents": "texts",
    "attributes": "texts",
    "output": _OUTPUT,
    "filter": _FILTER,
    "span_replacement": [_SPAN],
    "compression": _COMPRESSION,
    "sample_rate": "number",
}
_FILE: dict[str, Any] = {
    "streams": [_STREAM],
    "processes": "whole",
    "work_dir": {"input": "text", "output": "text"},
    "shuffle": "truth",
    "dryrun": "truth",
    "seed": "whole",
}
"""The keys of a file, with what their values are: a kind of scalar, the keys of a map, or those of each map of a list."""

_KINDS = {
    "text": "a text",
    "texts": "a list of texts",
    "whole": "a whole number",
    "number": "a number",
    "truth": "true or false",
}
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def read_config(config: str | Mapping[str, Any]) -> dict[str, Any]:
    """Read a mixer configuration, and check its keys and the types of its values.

    Parameters
    ----------
    config : str or dict
        File, or content.

    Returns
    -------
    dict
        With the keys that are given.

    Raises
    ------
    UsageError
        With all mistakes.
    """
    mistakes = Mistakes(called(config))
    node = read_yaml(config, mistakes) if isinstance(config, str) else _node_of(config)
    node = Interpolation(node, mistakes).resolve(node, ())
    found = _map(node, _FILE, "", mistakes)
    for number, stream in enumerate(found.get("streams", ())):
        _check_stream(stream, f"streams[{number}]", node, mistakes)
    mistakes.check()
    return found


def _check_stream(stream: dict[str, Any], where: str, node: Node, mistakes: Mistakes) -> None:
    """Note what a stream lacks."""
    for key, given in (
        ("name", stream.get("name")),
        ("documents", stream.get("documents")),
        ("output.path", (stream.get("output") or {}).get("path")),
    ):
        if not given:
            mistakes.add(node.place, f"{where}.{key} is missing.")
    for place, span in enumerate(stream.get("span_replacement") or ()):
        if not span.get("span"):
            mistakes.add(node.place, f"{where}.span_replacement[{place}].span is missing.")


def _node_of(value: object) -> Node:
    """Return a value from Python as if it stood in a file."""
    if isinstance(value, Mapping):
        values = {str(key): _node_of(item) for key, item in value.items()}
        return Pairs(values, dict.fromkeys(values, Place()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Items(tuple(map(_node_of, value)))
    if isinstance(value, bool) or value is None:
        return Scalar({True: "true", False: "false", None: "null"}[value])
    return Scalar(
        os.fspath(value) if isinstance(value, os.PathLike) else str(value), plain=not isinstance(value, str)
    )


def _map(node: Node, known: Mapping[str, Any], where: str, mistakes: Mistakes) -> dict[str, Any]:
    if not isinstance(node, Pairs):
        mistakes.add(node.place, f"{where or 'the file'}: expected a map with the keys {', '.join(known)}.")
        return {}
    found = {}
    for key, value in node.values.items():
        name = f"{where}.{key}" if where else key
        if key not in known:
            mistakes.add(node.keys[key], f"{name}: there is no such key; {near(key, known, '')}")
        elif not (isinstance(value, Scalar) and value.is_nothing):
            found[key] = _value(value, known[key], name, mistakes)
    return found


def _value(node: Node, kind: Any, name: str, mistakes: Mistakes) -> Any:
    if isinstance(kind, dict):
        return _map(node, kind, name, mistakes)
    if isinstance(kind, list) or kind == "texts":
        if not isinstance(node, Items):
            mistakes.add(node.place, f"{name}: expected a list.")
            return []
        inner = "text" if kind == "texts" else kind[0]
        return [_value(item, inner, f"{name}[{at}]", mistakes) for at, item in enumerate(node.items)]
    value = _scalar(node, kind)
    if value is None:
        shown = repr(node.text) if isinstance(node, Scalar) else "a list or map"
        mistakes.add(node.place, f"{name}: found {shown}, expected {_KINDS[kind]}.")
    return value


def _scalar(node: Node, kind: str) -> Any:
    """Return a value of a kind, None if it is none."""
    if not isinstance(node, Scalar):
        return None
    text = node.text
    try:
        if kind == "truth":
            return _TRUTH.get(text.lower())
        if kind == "whole":
            return int(text.replace("_", ""))
        return float(text) if kind == "number" else text
    except ValueError:
        return None


def called(config: object) -> str:
    """Return what messages call a configuration."""
    return config if isinstance(config, str) else "the configuration"
