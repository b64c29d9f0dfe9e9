"""What a verb takes, read from its signature: names, types and which are needed, the same for the command line and for YAML."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import GenericAlias, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Argument:
    """One argument of a verb.

    Attributes
    ----------
    name : str
        As in Python.
    hint : object
        Its type in words: see `in_words`.
    needed : bool
        It has no default.
    positional : bool
        It has no name in Python, only a position.
    shared : bool
        It is one of those that many verbs take (`dolma_dask.stages.options`).
    maps : bool
        Where a file is read, maps may stand for its texts.
    """

    name: str
    hint: Any
    needed: bool = False
    positional: bool = False
    shared: bool = False
    maps: bool = False


def in_words(hint: Any) -> Any:
    """Return what is left of a type where only words can be given: of a list its items' words, of several types the words."""
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        return Annotated[(in_words(inner), *more)]
    if get_origin(hint) is Sequence:
        return GenericAlias(Sequence, (in_words(get_args(hint)[0]),))
    if get_origin(hint) not in (Union, UnionType):
        return hint
    choices = get_args(hint)
    lists = [choice for choice in choices if get_origin(choice) is Sequence]
    if lists or str in choices:
        none = [choice for choice in choices if choice is type(None)]
        return reduce(or_, none, in_words(lists[0]) if lists else str)
    return hint


def bare(hint: Any) -> Any:
    """Return a type without what is only said of it."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def arguments_of(verb: Callable[..., Any]) -> dict[str, Argument]:
    """Return the arguments of a verb by name, its own first.

    Parameters
    ----------
    verb : callable
        Its annotations tell the types; those of ``**options`` are a TypedDict.
    """
    hints = get_type_hints(verb, include_extras=True)
    found: dict[str, Argument] = {}
    for item in inspect.signature(verb).parameters.values():
        if item.kind is item.VAR_KEYWORD:
            found.update(_shared(hints[item.name]))
        else:
            found[item.name] = Argument(
                item.name,
                bare(in_words(hints[item.name])),
                needed=item.default is item.empty,
                positional=item.kind is item.POSITIONAL_ONLY,
                maps=_has_maps(hints[item.name]),
            )
    return found


def _has_maps(hint: Any) -> bool:
    """Tell whether a map is among the types of an argument, or of the items of a list."""
    return get_origin(hint) is Mapping or any(map(_has_maps, get_args(hint)))


def _shared(options: Any) -> Mapping[str, Argument]:
    """Return the arguments that a TypedDict names; `options` is ``Unpack[...]`` of it."""
    (typed,) = get_args(options)
    hints = get_type_hints(typed, include_extras=True)
    return {name: Argument(name, bare(in_words(hint)), shared=True) for name, hint in hints.items()}
