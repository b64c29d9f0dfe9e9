"""The default version of a user's function, or a tagger made from one: a digest that changes when it would do something else.

Finished work is known by the version, so one that stays the same after an edit would leave wrong documents or attributes in place. The digest
therefore covers the source of the function, its default and bound values, and the constants, compiled patterns, functions and classes of the same
module that it names, as they are when the digest is taken (in a notebook: after the last cell that was run). It does not cover other packages,
files or models that the function uses: whoever depends on these gives a version by hand.
"""

import dataclasses
import functools
import hashlib
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))


def digest(*parts: object) -> str:
    """Digest values, functions among them, to sixteen hexadecimal digits."""
    seen: set[int] = set()
    text = "\n".join(_canonical(part, seen) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def source_of(function: Callable[..., object]) -> str:
    """Return the source text of a function, or its byte code and constants where there is no source."""
    try:
        # of its own code, also where it wraps another function
        return textwrap.dedent(inspect.getsource(getattr(function, "__code__", function)))
    except (OSError, TypeError, IndentationError):
        code = getattr(function, "__code__", None)
        return type(function).__qualname__ if code is None else _code_text(code)


def _code_text(code: types.CodeType) -> str:
    constants = [
        _code_text(c) if isinstance(c, types.CodeType) else _canonical(c, set()) for c in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {code.co_varnames} [{', '.join(constants)}]"


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def surroundings(function: Callable[..., object]) -> dict[str, object]:
    """Everything a function reads that is not in its source: defaults, bound variables, globals of its module.

    Functions of other modules are given by name; what is not a plain function is given as it is.
    """
    if not isinstance(function, types.FunctionType):
        return {"": function}
    facts: dict[str, object] = {"default": function.__defaults__, "keyword": function.__kwdefaults__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            facts[f"bound {name}"] = cell.cell_contents
        except ValueError:
            facts[f"bound {name}"] = "not set yet"
    for name in sorted(set(_names(function.__code__)) & set(function.__globals__)):
        facts[f"global {name}"] = function.__globals__[name]
    return {name: _by_name(value, function.__module__) for name, value in facts.items()}


def _by_name(value: object, module: str) -> object:
    if isinstance(value, types.FunctionType) and value.__module__ != module:
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, type) and value.__module__ == module:
        return _Class(value)
    return value


class _Class:
    """A class of the module of a function: known by what it defines, others by name."""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def members(self) -> dict[str, object]:
        """Return what decides what its objects do."""
        own = {
            name: _plain_member(value) for name, value in vars(self.cls).items() if name not in _NO_MEMBERS
        }
        return {name: value for name, value in own.items() if isinstance(value, (*_PLAIN, *_CONTAINERS))}


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
_CONTAINERS = (tuple, list, set, frozenset, dict, re.Pattern, np.ndarray, types.FunctionType)


def _canonical(value: Any, seen: set[int]) -> str:
    """Text that is the same for equal values in every process."""
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"re({value.pattern!r}, {value.flags})"
    if isinstance(value, np.ndarray):
        return f"array({value.dtype}, {value.shape}, {hashlib.sha256(value.tobytes()).hexdigest()})"
    if id(value) in seen:
        return "again"
    seen = seen | {id(value)}
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(_canonical(item, seen) for item in value)})"
    if isinstance(value, (set, frozenset)):
        return f"set({', '.join(sorted(_canonical(item, seen) for item in value))})"
    if isinstance(value, (dict, types.MappingProxyType)):
        items = (f"{_canonical(key, seen)}: {_canonical(item, seen)}" for key, item in value.items())
        return f"dict({', '.join(sorted(items))})"
    if isinstance(value, functools.partial):
        return f"partial({_canonical((value.func, value.args, value.keywords), seen)})"
    if isinstance(value, _Class):
        if id(value.cls) in seen:
            return "again"
        seen.add(id(value.cls))  # a method may name its class
        bases = [_by_name(base, value.cls.__module__) for base in value.cls.__bases__]
        return f"class({value.cls.__qualname__}, {_canonical([bases, value.members()], seen)})"
    wrapped = getattr(value, "__wrapped__", None)
    if isinstance(wrapped, types.FunctionType) and not isinstance(value, types.FunctionType):
        return f"{type(value).__qualname__}({_canonical(wrapped, seen)})"  # of functools.cache
    if isinstance(value, types.FunctionType):
        return f"function({source_of(value)!r}, {_canonical(surroundings(value), seen)})"
    if isinstance(value, types.ModuleType):
        return f"module({value.__name__})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return f"{type(value).__qualname__}({_canonical(fields, seen)})"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', type(value).__qualname__)}"
