"""Options of a command as one frozen record: from its fields follow signature, docstring, help, types in YAML and JSON, checks and what journals keep.

A field says its type, its default and `Opt`, the words and limits that people see. Nothing of it is said again anywhere::

    @dataclass(frozen=True, kw_only=True)
    class RowOptions(Options):
        max_seq_length: Annotated[int, Opt("Tokens of a row.", min=2)] = 2048
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from numbers import Integral, Real
from os import PathLike, fspath
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from dolma_dask.display import near_or_all
from dolma_dask.errors import UsageError

OWN, WHAT, OUTPUT, BAD, WHERE = "Options", "What to work on", "Output", "Bad records", "Where it runs"
"""Groups of options in the help, in this order."""

ABOVE_0 = math.ulp(0.0)
"""The least number above 0, as the `min` of an option that cannot be 0."""


@dataclass(frozen=True)
class Opt:
    """One option as people see it, and the limits of its values."""

    help: str  # in words that hold for Python and the command line; sentences that begin with "In Python" are of Python alone
    kind: str = ""  # its type in a docstring, if the annotation does not tell it well
    group: str = ""  # of the help; default: that of the class
    # of numbers
    min: float | None = None
    max: float | None = None
    expected: str = ""  # what a message says instead of the limits
    may_be_empty: bool = False  # of lists: an empty one means something
    convert: Callable[[Any], Any] | None = (
        None  # from what users give to what the command works with; refuses what it cannot be
    )
    is_flag: bool = False  # of truth values: the command line has no form with --no-


class Field(NamedTuple):
    """A field of `Options`, or a positional argument of a command."""

    name: str
    hint: Any  # without what Annotated adds
    option: Opt
    extras: tuple[Any, ...] = ()  # what else Annotated adds, such as cyclopts' Parameter
    default: Any = MISSING

    @property
    def is_needed(self) -> bool:
        """Tell whether it has no default."""
        return self.default is MISSING

    @property
    def kind(self) -> str:
        """Its type as a docstring shows it."""
        known = self.option.kind or shown_type(self.hint)
        return known if self.is_needed or self.default not in (None, (), False) else f"{known}, optional"

    def grouped(self, group: str) -> Self:
        """Return the same in another group of the help."""
        return self._replace(option=replace(self.option, group=group))


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base of the options of a command; subclasses are frozen dataclasses with keyword-only fields."""

    group: ClassVar[str] = OWN
    """Group of its fields in the help."""

    unrecorded: ClassVar[frozenset[str]] = frozenset()
    """Fields that journals do not keep, since nothing that is written depends on them."""

    def __post_init__(self) -> None:
        """Check all values, and put what users give into the form that commands work with."""
        for field in fields_of(type(self)):
            object.__setattr__(self, field.name, checked(field, getattr(self, field.name)))
        self.check()

    def check(self) -> None:
        """Refuse values that do not go together."""

    @classmethod
    def of(cls, given: Mapping[str, Any], command: str, more: Sequence[str] = ()) -> Self:
        """Return the options of a call by name; `more` are further arguments that it takes.

        Raises `UsageError`: a name is none of them, or a value cannot be what it should.
        """
        cls.check_names(given, command, more)
        return cls(**given)

    @classmethod
    def check_names(cls, given: Mapping[str, Any], command: str, more: Sequence[str] = ()) -> None:
        """Refuse names that are none of the options (`UsageError`), and a call that lacks one which is needed (`TypeError`)."""
        names = [field.name for field in fields_of(cls)]
        for name in given:
            if name not in names:
                raise UsageError(
                    f"{command}() takes no argument {name!r}; {near_or_all(name, [*more, *names])}", name=name
                )
        missing = [f.name for f in fields_of(cls) if f.is_needed and f.name not in given]
        if missing:
            raise TypeError(f"{command}() missing required keyword-only argument: {missing[0]!r}")

    @classmethod
    def from_json(cls, what: str, given: str | Mapping[str, Any], form: str) -> Self:
        """Return options that stand in a map, also as JSON text; `what` they are of, and the `form` that they should have, for messages."""
        options = read_json(what, given, f"its options in JSON: {form}.")
        known = [field.name for field in fields_of(cls)]
        for name in options:
            if name not in known:
                raise UsageError(f"{what} has no option {name!r} here; {near_or_all(name, known)}", name=name)
        for field in fields_of(cls):
            if field.is_needed and field.name not in options:
                raise UsageError(f"{what} lacks {field.name!r}; expected {form}.")
        try:
            return cls(**options)
        except UsageError as error:
            raise UsageError(f"{what}: {error}", **error.details) from None

    def part(self, kind: "type[Part]") -> "Part":
        """Return those of the options that another kind has too."""
        known = {field.name for field in fields_of(type(self))}
        return kind(**{f.name: getattr(self, f.name) for f in fields_of(kind) if f.name in known})

    def given(self, kind: type["Options"] | None = None) -> dict[str, Any]:
        """Return the options that differ from their defaults, by name; of one `kind` alone if it is named."""
        every = fields_of(kind or type(self))
        return {f.name: getattr(self, f.name) for f in every if getattr(self, f.name) != f.default}

    def params(self, **others: Any) -> dict[str, Any]:
        """Return the options as journals keep them: without empty ones and those that change nothing; `others` replace or follow them."""
        left_out = frozenset[str]().union(*(getattr(base, "unrecorded", ()) for base in type(self).__mro__))
        known = {
            f.name: recorded(getattr(self, f.name)) for f in fields_of(type(self)) if f.name not in left_out
        }
        return without_empty({**known, **others})


Part = TypeVar("Part", bound=Options)


def recorded(value: Any) -> Any:
    """Return a value as JSON has it: tuples as lists, objects such as rules as their text."""
    if isinstance(value, tuple):
        return [recorded(item) for item in value]
    is_plain = value is None or isinstance(value, str | int | float | bool | list | Mapping)
    return value if is_plain else str(value)


def without_empty(params: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a run for the journal and the report: those that were given."""
    return {name: value for name, value in params.items() if value not in (None, (), [], {})}


def fields_of(kind: type[Options]) -> tuple[Field, ...]:
    """Return the fields of options in the order of help: those of a class itself, then those of its bases, one after the other."""
    return _fields_of(cast(Any, kind))


@cache
def _fields_of(kind: Any) -> tuple[Field, ...]:
    hints, known = get_type_hints(kind, include_extras=True), {item.name: item for item in fields(kind)}
    holders = {
        name: base for base in reversed(kind.__mro__) for name in vars(base).get("__annotations__", {})
    }
    names = [
        name for base in kind.__mro__ for name, holder in holders.items() if holder is base and name in known
    ]
    return tuple(
        field_of(name, hints[name], _default(known[name]), vars(holders[name]).get("group", OWN))
        for name in names
    )


def _default(item: Any) -> Any:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def field_of(name: str, hint: Any, default: Any = MISSING, group: str = OWN) -> Field:
    """Return an annotated argument as a field."""
    inner, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    option = next((item for item in extras if isinstance(item, Opt)), Opt(""))
    option = option if option.group else replace(option, group=group)
    return Field(name, inner, option, tuple(item for item in extras if not isinstance(item, Opt)), default)


# ------------------------------------------------------------------------------------------------ types


def members(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def shown_type(hint: Any) -> str:
    """Return a type in the words of a docstring."""
    kinds = [item for item in members(hint) if item is not NoneType]
    first = next((item for item in kinds if get_origin(item) is Sequence), kinds[0])
    origin = get_origin(first)
    if origin is Literal:
        return "{" + ", ".join(f'"{item}"' for item in get_args(first)) + "}"
    if origin is Sequence:
        return f"list of {shown_type(get_args(first)[0])}"
    if origin is Mapping:
        return "dict"
    if str in kinds:
        return "str"
    return str(getattr(first, "__name__", first))


# ------------------------------------------------------------------------------------------------ checks


def checked(field: Field, value: Any) -> Any:
    """Return a value of an option in the form that commands work with.

    Raises `UsageError`: it cannot be one.
    """
    option = field.option
    if option.convert is not None:
        return option.convert(value)
    kinds = members(field.hint)
    if value is None and NoneType in kinds:
        return value
    is_list = any(get_origin(kind) is Sequence and get_args(kind)[0] is str for kind in kinds)
    if is_list and not isinstance(value, Mapping):
        return words_of(field.name, value, option.may_be_empty)
    for kind in kinds:
        if get_origin(kind) is Literal:
            return check_choice(field.name, value, get_args(kind))
    if kinds in ((bool,), (bool, NoneType)):
        return check_truth(field.name, value, option.expected or "True or False")
    if set(kinds) <= {int, float, NoneType}:
        return check_number(field, value, kinds)
    if isinstance(value, PathLike) and str in kinds:
        return fspath(value)
    if set(kinds) <= {str, NoneType} and not isinstance(value, str):
        raise UsageError(f"{field.name}={value!r} is of type {type(value).__name__}; expected text.")
    return value


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> Any:
    """Return a value that is one of `choices`; refuse any other."""
    if value not in choices:
        raise UsageError(f"{name}={value!r}; expected one of {', '.join(map(str, choices))}.")
    return value


def check_truth(name: str, value: Any, expected: str = "True or False") -> bool:
    """Return a truth value; refuse what only counts as one."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}={value!r}; expected {expected}.")
    return value


def check_number(field: Field, value: Any, kinds: Sequence[Any]) -> Any:
    """Return a number within the limits of an option, NumPy's as Python's; refuse anything else."""
    option, is_real = field.option, float in kinds
    is_number = isinstance(value, Real if is_real else Integral) and not isinstance(value, bool)
    lower = value if option.min is None else option.min
    upper = value if option.max is None else option.max
    if is_number and lower <= value <= upper:
        return int(value) if isinstance(value, Integral) else float(value)
    raise UsageError(f"{field.name}={value!r}; expected {option.expected or _limits(option, is_real)}.")


def _limits(option: Opt, is_real: bool) -> str:
    what = "a number" if is_real else "a whole number"
    if option.max is not None:
        return (
            f"{what} up to {option.max:,}"
            if option.min is None
            else f"{what} from {option.min:,} to {option.max:,}"
        )
    return what if option.min is None else f"{what}, {option.min:,} or more"


def words_of(name: str, value: Any, may_be_empty: bool = False) -> tuple[str, ...]:
    """Return a list of words as a tuple, for the argument `name`; a single word is a list of one, an empty tuple an argument that was not given.

    Raises `UsageError`: a list (unless it may be empty) or a word is empty, or something else than words was given.
    """
    words = (value,) if isinstance(value, str | PathLike) else value
    if not isinstance(words, Sequence) or not all(isinstance(word, str | PathLike) for word in words):
        raise UsageError(f"{name}={value!r}; expected words, such as {name}=['a', 'b'].")
    if (isinstance(words, list) and not words and not may_be_empty) or not all(map(str, words)):
        raise nothing_in(name)
    return tuple(map(fspath, words))


def nothing_in(name: str) -> UsageError:
    """Return the error of an argument that was given and holds nothing."""
    return UsageError(
        f"`{name}` was given with nothing in it; expected one value or more. Leave it out to mean the default."
    )


def read_json(what: str, given: str | Mapping[str, Any], expected: str) -> Mapping[str, Any]:
    """Return options by name, which the command line gives as JSON text."""
    if isinstance(given, Mapping):
        return given
    from dolma_dask.formats.json import NOT_JSON  # help needs no kernels

    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except (*NOT_JSON, TypeError) as error:
        raise UsageError(f"cannot read {what} {given!r}: {error}; expected {expected}") from None
