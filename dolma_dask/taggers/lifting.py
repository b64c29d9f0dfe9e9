"""A plain function as a tagger: the type that it returns says what it writes.

``def shouting(text: str) -> float`` becomes the tagger ``shouting`` with one type of that name. Its version is the digest of its source.
"""

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

from dolma_dask.errors import UsageError
from dolma_dask.formats.documents import STRINGS
from dolma_dask.functions.calls import user_function
from dolma_dask.functions.digest import source_of
from dolma_dask.taggers.base import Kind, Tagger
from dolma_dask.taggers.functions import FunctionTagger
from dolma_dask.taggers.registry import check_tagger, find_built_in

_EXPECTED = "-> float, int, bool, str, dict[str, float], or list[tuple[int, int, float]] for spans; `| None` behind it where a text may have no value"

_NAMES: Mapping[str, Any] = {"float": float, "int": int, "bool": bool, "str": str, "dict": dict, "list": list}


def as_tagger(given: Any, place: str = "") -> Tagger:
    """Return a tagger as it is, and a function of one text (or of the columns that its parameters name) as one.

    Raises `UsageError`: it is neither, or does not say what it returns.
    """
    if not isinstance(given, types.FunctionType):
        check_tagger(given)
        return given  # type: ignore[no-any-return]
    parameters = [
        item.name for item in inspect.signature(given).parameters.values() if item.default is item.empty
    ]
    reads = tuple(parameters) if set(parameters) <= set(STRINGS) and parameters else ("text",)
    user_function(given, reads)
    name = given.__name__
    if find_built_in(name) is not None:
        raise UsageError(
            f"{place or name}: {name!r} is a tagger shipped with dolma_dask; give your function another name."
        )
    kind = _kind(given, place or name)
    scalars = {name: kind} if isinstance(kind, type) else {}
    kinds: dict[str, Kind] = {name: "scalar" if isinstance(kind, type) else kind}
    version = getattr(given, "version", None)
    lifted = FunctionTagger(name, kinds, reads, given, False, scalars, source_of(given), version)
    check_tagger(lifted)
    return lifted


def _kind(function: Callable[..., Any], name: str) -> Any:
    """Return the kind of what a function returns; of a bare value its type."""
    annotation = _without_none(function.__annotations__.get("return"))
    if isinstance(annotation, str):
        outer = annotation.replace("Optional[", "").partition("|")[0].strip()
        annotation = _NAMES.get(outer.partition("[")[0].rpartition(".")[2].lower())
    kind = get_origin(annotation) or annotation
    if kind in (float, int):
        return "document"
    if kind in (bool, str):
        return kind
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "dict"
    if kind in (list, tuple, Sequence):
        return "spans"
    raise UsageError(
        f"{name} does not say what it returns; expected a type such as {_EXPECTED}. Or make it a tagger: @dolma_dask.tagger(types=...)."
    )


def _without_none(annotation: Any) -> Any:
    """Return X of ``X | None``."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    others = [one for one in get_args(annotation) if one is not type(None)]
    return others[0] if len(others) == 1 else None
