"""The default version of a user's function, or a tagger made from one: a digest that changes when it would do something else.

Finished work is known by the version, so one that stays the same after an edit would leave wrong documents or attributes in place. The digest
therefore covers the source of the function, its default and bound values, and the constants, compiled patterns, functions, classes and their objects
of the same module that it names, as they are when the digest is taken (in a notebook: after the last cell that was run). It does not cover other
packages, files or models that the function uses: whoever depends on these gives a version by hand.
"""

import dataclasses
import datetime
import decimal
import functools
import inspect
import linecache
import operator
import pathlib
import re
import textwrap
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, type(Ellipsis), bytearray, range, slice),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.timezone, decimal.Decimal),
    *(pathlib.PurePath, np.generic, operator.itemgetter, operator.attrgetter, operator.methodcaller),
)
"""Types whose ``repr`` says all of a value."""


def digest(*parts: object) -> str:
    """Digest values, functions among them, to sixteen hexadecimal digits."""
    spelling = _Spelling()
    return _sha("\n".join(map(spelling, parts)))[:16]


def _sha(content: str | bytes) -> str:
    import hashlib  # loads OpenSSL

    data = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()


def source_of(function: Callable[..., object]) -> str:
    """Return the source text of a function, or its byte code and constants where there is no source, or one that is not of this function alone."""
    code = getattr(function, "__code__", None)
    try:
        # of its own code, also where it wraps another function
        source = textwrap.dedent(inspect.getsource(code or function))
    except (OSError, TypeError, IndentationError):
        return type(function).__qualname__ if code is None else _code_text(code)
    if code is None or (code.co_name != "<lambda>" and _is_current(code)):
        return source
    return _code_text(code)  # lambdas share lines


def _is_current(code: types.CodeType) -> bool:
    """Tell whether a file still has the code that was loaded from it: it may have been edited after the import."""
    try:
        return code in _codes("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError, RecursionError):
        return False


@functools.lru_cache(64)
def _codes(source: str) -> frozenset[types.CodeType]:
    return frozenset(_inside(compile(source, "", "exec", dont_inherit=True)))


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _inside(constant)


def _code_text(code: types.CodeType) -> str:
    constants = [_code_text(c) if isinstance(c, types.CodeType) else _Spelling()(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} [{', '.join(constants)}]"


def surroundings(function: Callable[..., object]) -> dict[str, object]:
    """Everything a function reads that is not in its source: defaults, bound variables, globals of its module.

    What is not a plain function is given as it is.
    """
    if not isinstance(function, types.FunctionType):
        return {"": function}
    facts: dict[str, object] = {"default": function.__defaults__, "keyword": function.__kwdefaults__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            facts[f"bound {name}"] = cell.cell_contents
        except ValueError:
            facts[f"bound {name}"] = "not set yet"
    names = {name for code in _inside(function.__code__) for name in code.co_names}
    for name in sorted(names & set(function.__globals__)):
        facts[f"global {name}"] = function.__globals__[name]
    return {name: _Seen(value, function.__module__) for name, value in facts.items()}


class _Seen(Struct, frozen=True):
    """A value that code of a module reads: functions, classes and objects of that module count with their source, others by name."""

    value: object
    module: str


def _members(cls: type) -> dict[str, object]:
    """Return what decides what the objects of a class do."""
    return {name: _plain_member(value) for name, value in vars(cls).items() if name not in _NO_MEMBERS}


def _plain_member(value: Any) -> Any:
    """Return the function of a method or property."""
    for name in ("__func__", "fget", "func"):
        value = getattr(value, name, value)
    return value


_NO_MEMBERS = frozenset(
    {
        "__dict__",
        "__weakref__",
        "__doc__",
        "__module__",
        "__annotations__",
        "__firstlineno__",
        "__static_attributes__",
    }
)


class _Spelling:
    """Spells values as text that is the same for equal ones in every process; each function, class and object once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, str]] = {}  # by id; held, so that no other object gets it

    def __call__(self, value: Any, module: str | None = None) -> str:
        """Return the text of a value that code of `module` reads."""
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, _Seen):
            return self(value.value, value.module)
        known = self._known.get(id(value))
        if known is None:
            self._known[id(value)] = value, "again"
            known = self._known[id(value)] = value, self._spelled(value, module)
        return known[1]

    def _spelled(self, value: Any, module: str | None) -> str:
        if isinstance(value, re.Pattern):
            return f"re({value.pattern!r}, {value.flags})"
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return f"array({value.dtype}, {value.shape}, {_sha(value.tobytes())})"
        if isinstance(value, (tuple, list, deque, np.ndarray)):
            return f"{type(value).__name__}({', '.join(self(item, module) for item in value)})"
        if isinstance(value, (set, frozenset)):
            return f"set({', '.join(sorted(self(item, module) for item in value))})"
        if isinstance(value, (dict, types.MappingProxyType)):
            items = (f"{self(key, module)}: {self(item, module)}" for key, item in value.items())
            return f"dict({', '.join(sorted(items))})"
        if isinstance(value, functools.partial):
            return f"partial({self((value.func, value.args, value.keywords), module)})"
        if isinstance(value, types.MethodType):
            return f"method({self(value.__func__, module)}, {self(value.__self__, module)})"
        wrapped = getattr(value, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType) and not isinstance(value, types.FunctionType):
            return f"{type(value).__qualname__}({self(wrapped, module)})"  # of functools.cache
        if isinstance(value, types.FunctionType):
            return self._function(value, module)
        if isinstance(value, types.ModuleType):
            return f"module({value.__name__})"
        return self._object(value, module)

    def _function(self, value: types.FunctionType, module: str | None) -> str:
        if module not in (None, value.__module__):
            return f"{value.__module__}.{value.__qualname__}"
        return f"function({_sha(source_of(value) + self(surroundings(value)))})"

    def _object(self, value: Any, module: str | None) -> str:
        """Return the text of a class, or of an object of one."""
        cls = value if isinstance(value, type) else type(value)
        is_own = module is not None and cls.__module__ == module
        if value is cls and is_own:
            return f"class({cls.__qualname__}, {_sha(self(list(cls.__bases__), module) + self(_members(cls), module))})"
        if value is not cls and (is_own or isinstance(value, Struct) or dataclasses.is_dataclass(cls)):
            return f"object({self(cls, module)}, {self(_state(value), module)})"
        named = value if hasattr(value, "__qualname__") else cls
        return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', cls.__qualname__)}"


def _state(value: Any) -> dict[str, object]:
    """Return what an object holds."""
    slots = [
        name for cls in type(value).__mro__ for name in np.atleast_1d(getattr(cls, "__slots__", ())).tolist()
    ]
    return {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(
        value, "__dict__", {}
    )
