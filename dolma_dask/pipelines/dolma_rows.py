"""Rows of the table of the Dolma toolkit's options: what each option does here, and how options are found by their full names."""

import re
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Annotated, Any, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from dolma_dask.options.base import members

OPTION = re.compile(r"--?[A-Za-z]")
"""Beginning of a word that names an option."""

_NUMBERS = re.compile(r"\.\d+(?=\.|$)")


class Row(NamedTuple):
    """What an option of the toolkit does here."""

    here: str
    to: str = ""  # option of the command here that takes its value
    value: Callable[[Any], Any] | None = None  # from its value to that of the option
    is_idle: bool = False  # it changes nothing, which the summary says if it was given


class Leaf(NamedTuple):
    """One option."""

    name: str  # in full, such as "dedupe.documents.key", "streams[].name"
    hint: Any
    default: Any  # `msgspec.NODEFAULT`: it is needed
    row: Row

    @property
    def kind(self) -> str:
        """Its type in words."""
        kind = next(kind for kind in members(self.hint) if kind is not NoneType)
        names = {str: "text", bool: "true or false", int: "whole number", float: "number"}
        return "list" if get_origin(kind) is list else names[kind]

    @property
    def shown_default(self) -> str:
        """Its default as the table shows it."""
        if self.default is msgspec.NODEFAULT:
            return "needed"
        return msgspec.json.encode(self.default).decode()


def leaves(kind: type[Struct], above: str = "") -> Iterator[Leaf]:
    """Yield the options of a command, those of groups by their full names."""
    for field in msgspec.structs.fields(kind):
        hint, *more = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
        group, name = group_of(hint), f"{above}{field.encode_name}"
        if group is not None:
            yield from leaves(group, f"{name}[]." if get_origin(hint) is list else f"{name}.")
        else:
            row = next((item for item in more if isinstance(item, Row)), Row(""))
            yield Leaf(name, hint, _default(field), row)


def find_leaf(kind: type[Struct], option: str) -> tuple[str, Leaf, bool] | None:
    """Return the full name of an option as it stands in a file, what is known of it, and whether it says no; None if there is none."""
    name = option.lstrip("-").replace("-", "_")
    known = {leaf.name: leaf for leaf in leaves(kind)}
    for text, is_no in ((name, False), (name.removeprefix("no_"), True)):
        leaf = known.get(_NUMBERS.sub("[]", text))
        if leaf is not None and (not is_no or leaf.hint is bool):
            return text, leaf, is_no
    return None


def group_of(hint: Any) -> type[Struct] | None:
    """Return the record of a group of options, or of each in a list of groups; None for an option."""
    inner = get_args(hint)[0] if get_origin(hint) in (list, Annotated) else hint
    return inner if isinstance(inner, type) and issubclass(inner, Struct) else None


def _default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def idle(why: str) -> Row:
    """Return the row of an option that changes nothing here."""
    return Row(f"no effect: {why}", is_idle=True)
