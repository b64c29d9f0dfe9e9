"""What a shell offers for an option: paths where files are meant, names where only some are valid.

The names of taggers are those of the moment in which the completion is written; plug-ins that come later need it written again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import GenericAlias, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from dolma_dask.registry import VERBS

_PATHS = {name for verb in VERBS.values() for name in (*verb.reads, *verb.files, *verb.writes)} | {
    "path",
    "folder",
}


def completed(hints: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of arguments with paths and choices in place of plain texts."""
    choices = {"taggers": _taggers(), "mapping": _mappings()}
    return {name: _replaced(hint, _meant(name, choices)) for name, hint in hints.items()}


def _meant(name: str, choices: Mapping[str, tuple[str, ...]]) -> Any:
    if name in choices:
        return Literal.__getitem__(choices[name])
    return Path if name in _PATHS else str


def _replaced(hint: Any, meant: Any) -> Any:
    """Return a type with `meant` for every text in it."""
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        return Annotated[(_replaced(inner, meant), *more)]
    if get_origin(hint) is Sequence:
        return GenericAlias(Sequence, (_replaced(get_args(hint)[0], meant),))
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        return _replaced(kinds[0], meant) if len(kinds) == 1 else hint
    return meant if hint is str else hint


def _taggers() -> tuple[str, ...]:
    from dolma_dask.taggers.registry import list_taggers

    return tuple(item.name for item in list_taggers())


def _mappings() -> tuple[str, ...]:
    from dolma_dask.sources.presets import PRESETS

    return tuple(PRESETS)
