"""Commands: functions whose keyword arguments are the fields of one record of options.

``@command`` turns ``def tag(dataset, /, taggers, *, options: TagOptions)`` into ``tag(dataset, /, taggers, *, experiment=None, ..., workers=None)``, with
that signature and a docstring that lists all of it; a call makes the record, which checks it, and hands it over.
"""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import wraps
from typing import Any, TypeVar, get_type_hints

from dolma_dask.options.base import Field, Options, checked, field_of, fields_of

R = TypeVar("R")
Kind = TypeVar("Kind", bound=Options)

_WIDTH = 140
"""Columns of a docstring."""


@dataclass(frozen=True)
class Command:
    """A command: its arguments that have a position in Python, and the options that it takes by name."""

    name: str
    doc: str  # of its function, without the arguments
    arguments: tuple[Field, ...]
    positions: Mapping[str, Any]  # kind of each of the arguments, as `inspect.Parameter` has it
    options: type[Options]  # `Options` itself: none
    returns: Any = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """All arguments, those with a position first."""
        return (*self.arguments, *fields_of(self.options))

    def head(self) -> list[inspect.Parameter]:
        """Return the arguments with a position."""
        return [_parameter(field, self.positions[field.name]) for field in self.arguments]

    def signature(self) -> inspect.Signature:
        """Return the signature of calls in Python."""
        others = [_parameter(field, inspect.Parameter.KEYWORD_ONLY) for field in fields_of(self.options)]
        return inspect.Signature([*self.head(), *others], return_annotation=self.returns)

    def bound(self, args: tuple[Any, ...], given: dict[str, Any]) -> tuple[list[Any], Options]:
        """Return the arguments of a call, checked: those with a position, and the record of the others."""
        has_name = [
            name for name, kind in self.positions.items() if kind is not inspect.Parameter.POSITIONAL_ONLY
        ]
        by_name = {name: given[name] for name in has_name if name in given}
        try:
            first = inspect.Signature(self.head()).bind(*args, **by_name)
        except TypeError as error:
            raise TypeError(self._misplaced(args, given) or f"{self.name}(): {error}") from None
        first.apply_defaults()
        values = [checked(field, first.arguments[field.name]) for field in self.arguments]
        others = {name: value for name, value in given.items() if name not in by_name}
        return values, self.options.of(others, self.name, has_name)

    def _misplaced(self, args: tuple[Any, ...], given: Mapping[str, Any]) -> str:
        """Say what is wrong with the places of the arguments of a call: too many, too few, or one by name that has none; empty if nothing is."""
        shown = ", ".join(self.positions) or "none"
        if len(args) > len(self.positions):
            needed = (field.name for field in fields_of(self.options) if field.is_needed)
            name = next((name for name in needed if name not in given), "name")
            return (
                f"{self.name}() takes {shown} without a name, and was given {len(args)} arguments of that kind; "
                f"expected all others by name: {name}={args[len(self.positions)]!r}"
            )
        nameless = (
            name for name, kind in self.positions.items() if kind is inspect.Parameter.POSITIONAL_ONLY
        )
        wrong = next((name for name in nameless if name in given), "")
        return wrong and f"{self.name}() takes {wrong} without a name; expected {self.name}({shown}, ...)"


def _parameter(field: Field, kind: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if field.is_needed else field.default
    return inspect.Parameter(field.name, kind, default=default, annotation=field.hint)


def command(function: Callable[..., R]) -> Callable[..., R]:
    """Make a command of a function; if its last argument is named ``options``, it is the record of what may be given by name."""
    known = _described(function)

    @wraps(function)
    def call(*args: Any, **given: Any) -> R:
        values, options = known.bound(args, given)
        return function(*values, options=options) if fields_of(known.options) else function(*values)

    call.command = known  # type: ignore[attr-defined]
    call.__signature__ = known.signature()  # type: ignore[attr-defined]
    call.__annotations__ = {field.name: field.hint for field in known.fields} | {"return": known.returns}
    call.__doc__ = documented(known)
    return call


def _described(function: Callable[..., Any]) -> Command:
    hints = get_type_hints(function, include_extras=True)
    first = [item for item in inspect.signature(function).parameters.values() if item.name != "options"]
    return Command(
        function.__name__,
        inspect.cleandoc(function.__doc__ or ""),
        tuple(field_of(item.name, hints[item.name], _default(item)) for item in first),
        {item.name: item.kind for item in first},
        hints.get("options", Options),
        hints.get("return"),
    )


def _default(item: inspect.Parameter) -> Any:
    return MISSING if item.default is item.empty else item.default


def described(kind: type[Kind]) -> type[Kind]:
    """Give a record of options that users make the signature, the docstring and the messages of a command."""
    plain = kind.__init__
    shown = [_parameter(field, inspect.Parameter.KEYWORD_ONLY) for field in fields_of(kind)]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)

    @wraps(plain)
    def init(self: Kind, **given: Any) -> None:
        kind.check_names(given, kind.__name__)
        plain(self, **given)

    init.__signature__ = inspect.Signature([own, *shown])  # type: ignore[attr-defined]
    kind.__init__ = init  # type: ignore[method-assign, assignment]
    kind.__doc__ = _with_arguments(inspect.cleandoc(kind.__doc__ or ""), fields_of(kind))
    return kind


def documented(known: Command) -> str:
    """Return the docstring of a command, with a section of all arguments before that of what it returns."""
    return _with_arguments(known.doc, known.fields)


def _with_arguments(doc: str, arguments: Sequence[Field]) -> str:
    entries = [f"{field.name} : {field.kind}\n{_wrapped(field.option.help)}" for field in arguments]
    head, mark, rest = doc.partition("\nReturns\n")
    section = "\n".join(["Parameters", "----------", *entries])
    return f"{head.rstrip()}\n\n{section}\n{mark}{rest}" if entries else doc


def _wrapped(text: str) -> str:
    indent = " " * 4
    return textwrap.fill(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
