"""A function of a user as verbs carry it: its name, its version, and how it is called.

The version is a digest of the source (`dolma_dask.functions.digest`), or what the attribute ``version`` of the function says; it is part of the key of
finished work, so that an edited function does its work again. What a function raises is told with the line of the user's file.
"""

import copyreg
import functools
import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dolma_dask.errors import DataError, UsageError
from dolma_dask.functions.digest import digest
from dolma_dask.functions.places import find_object, what_failed

FunctionLike = str | Callable[..., Any]
"""A function, or where it is: ``file.py:name`` or ``module:name``."""

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType)


STOPS = (MemoryError, KeyboardInterrupt, DataError)
"""Exceptions that say nothing about a record."""


class CallError(Exception):
    """A function of a user raised; the message says what and where."""


def is_imported(function: object) -> bool:
    """Tell whether other processes import a function, which is not sent to them then."""
    module = getattr(function, "__module__", None) or type(function).__module__
    return module != "__main__" and module in sys.modules


def _reduce_cached(function: Any) -> Any:
    """Send a function of `functools.cache` as others are sent: by value where nobody can import it, which pickle alone cannot."""
    if is_imported(function):
        return function.__qualname__
    return _cached, (function.__wrapped__, function.cache_parameters())


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


copyreg.pickle(functools._lru_cache_wrapper, _reduce_cached)


@dataclass(frozen=True, eq=False)
class UserFunction:
    """A function with what errors, journals and provenance call it."""

    name: str  # as it was given, or the name of the function and its module
    function: Callable[..., Any]
    version: str
    file: str = ""  # of its code

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "is_imported": is_imported(self.function)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        was_imported = state.pop("is_imported")
        vars(self).update(state)
        if was_imported and version_of(self.function, self.name) != self.version:
            vars(self)["function"] = functools.partial(_refuse, self.name)

    def __call__(self, *args: Any) -> Any:
        """Call the function.

        Raises `CallError`: it raised, whatever it was, but for what stops a run.
        """
        return self.finished(lambda made: made, *args)

    def finished(self, finish: Callable[[Any], Any], *args: Any) -> Any:
        """Call the function, and `finish` on what it returned, which may run more of its code; raises as a call does."""
        try:
            return finish(self.function(*args))
        except STOPS:
            raise
        except BaseException as error:
            raise CallError(what_failed(error, self.file)) from error


def _refuse(name: str, *_: Any) -> None:
    raise DataError(
        f"function {name} would do something else in this process: values or functions of its module were changed after the import, or its file "
        "was. Let it hold its values itself, or give scheduler='threads'."
    )


def user_function(given: FunctionLike, arguments: tuple[str, ...]) -> UserFunction:
    """Return a function of a user that is called with so many arguments.

    Raises `UsageError`: it cannot be found, is no function, takes other arguments, is a coroutine, or its version is not known.
    """
    function = find_object(given) if isinstance(given, str) else given
    name = given.rpartition("/")[2] if isinstance(given, str) else _name_of(function)
    if not callable(function) or isinstance(function, type):
        raise UsageError(
            f"{name} is {'a class' if isinstance(function, type) else f'of type {type(function).__name__}'}; expected a function of {_listed(arguments)}."
        )
    inner = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise UsageError(f"{name} is declared with `async`; expected a plain function (def).")
    _check_arguments(name, function, arguments)
    code = getattr(inner, "__code__", None)
    return UserFunction(name, function, version_of(function, name), code.co_filename if code else "")


def _name_of(function: Any) -> str:
    named = function.func if isinstance(function, functools.partial) else function
    own = str(getattr(named, "__qualname__", type(named).__qualname__))
    module = getattr(named, "__module__", None)
    return own if module in (None, "__main__", "builtins") else f"{module}:{own}"


def _listed(arguments: tuple[str, ...]) -> str:
    return (
        f"one {arguments[0]}" if len(arguments) == 1 else f"{len(arguments)} values: {', '.join(arguments)}"
    )


def _check_arguments(name: str, function: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return  # a builtin that does not tell
    try:
        signature.bind(*arguments)
    except TypeError:
        raise UsageError(
            f"{name} takes {signature}; expected a function that can be called with {_listed(arguments)}."
        ) from None


def version_of(function: Any, name: str) -> str:
    """Return the attribute ``version`` of a function, else the digest of its source."""
    given = getattr(function, "version", None)
    if isinstance(given, int | str):
        return str(given)
    inner = function.func if isinstance(function, functools.partial) else inspect.unwrap(function)
    if not isinstance(inner, _FUNCTIONS):
        raise UsageError(
            f"{name}: what {type(inner).__name__} objects do is not known by their source; expected a function, or an attribute `version`, to raise "
            "when it does something else."
        )
    return digest(function)
