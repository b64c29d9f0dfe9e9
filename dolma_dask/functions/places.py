"""Find an object by ``file.py:name`` or ``module:name``: a function that converts records or rewrites texts, or a tagger.

A file is executed once for each content of it, as a module of its own that is not left in ``sys.modules``: files of one name do not meet, a file
that was edited is read again, and cloudpickle sends what it defines by value, so that workers need not see it. A module is imported as usual, and
workers have to have it. Cost: that of the code at the top of the file.
"""

import importlib
import sys
import threading
import traceback
import types
from pathlib import Path
from typing import Any

from dolma_dask.display import near_or_all
from dolma_dask.errors import UsageError

_SUFFIX = ".py"
_EXPECTED = "expected file.py:name or module:name"

_loaded: dict[Path, tuple[bytes, types.ModuleType]] = {}
_lock = threading.Lock()


def is_place(text: str) -> bool:
    """Tell whether a text says where an object is, and is not a name alone."""
    return ":" in text or text.endswith(_SUFFIX)


def find_object(place: str) -> Any:
    """Return the object at ``file.py:name``, relative to the working directory, or ``module:name``.

    Raises `UsageError`: there is no such file, module or name, or its code raises.
    """
    where, colon, name = place.rpartition(":")
    if not colon:
        where, name = place, ""
    is_file = where.endswith(_SUFFIX) or "/" in where
    module = execute_file(where) if is_file else _of_module(where, place)
    if not name:
        raise UsageError(f"{place!r} names no object; {_EXPECTED}. {where} has {_names(module)}.")
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = _defined(found)
            hint = near_or_all(part, known) if known else "it defines nothing that can be called."
            raise UsageError(f"{where} has no {name!r}: {hint}", place=place)
        found = getattr(found, part)
    return found


def execute_file(where: str) -> types.ModuleType:
    """Return what the code of a file made, as a module that is not left in ``sys.modules``; raises as `find_object`."""
    path = Path(where).expanduser().resolve()
    try:
        code = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{where}: {error.strerror or error}; expected a Python file on this computer, seen from {Path.cwd()}.",
            path=where,
        ) from None
    with _lock:
        known = _loaded.get(path)
        if known is None or known[0] != code:
            known = _loaded[path] = code, _executed(path, code, where)
    return known[1]


def _executed(path: Path, code: bytes, where: str) -> types.ModuleType:
    """Execute a file as a module that others find only meanwhile: dataclasses look for theirs."""
    name = f"user_file_{path.stem}"  # no folder in it: a function that is moved stays the same
    module = types.ModuleType(name)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        exec(compile(code, str(path), "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{where} cannot be used: {what_failed(error, str(path))}{_of_import(error)}", path=where
        ) from error
    finally:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
    return module


def _of_import(error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return ". Correct it there."
    return (
        ". Install that package, or put what is used into the same file: modules beside it are not searched."
    )


def _of_module(name: str, place: str) -> types.ModuleType:
    """Import a module."""
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if not isinstance(error, ModuleNotFoundError) or error.name not in _parents(name):
            raise UsageError(
                f"module {name!r} of {place!r} cannot be imported: {what_failed(error)}."
            ) from error
        beside = Path(f"{name.replace('.', '/')}{_SUFFIX}")
        hint = (
            f"Write {beside}:{place.rpartition(':')[2]} for the file that is here."
            if beside.is_file()
            else ""
        )
        raise UsageError(
            f"there is no module {name!r} in this environment; {_EXPECTED}, a module that is installed, here and on workers. {hint}".rstrip(),
            place=place,
        ) from None


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _defined(owner: Any) -> list[str]:
    """Return the public callables that a module, or a class in it, itself defines."""
    home = getattr(owner, "__module__", getattr(owner, "__name__", ""))
    return [
        name
        for name, value in getattr(owner, "__dict__", {}).items()
        if not name.startswith("_") and callable(value) and _home(value) in (home, "")
    ]


def _home(value: Any) -> str:
    function = getattr(value, "function", value)  # of a tagger
    return str(getattr(function, "__module__", ""))


def _names(module: types.ModuleType) -> str:
    return ", ".join(_defined(module)) or "no function"


def what_failed(error: BaseException, file: str = "") -> str:
    """Return an exception in words, with the last line of `file` (else of any file) that it passed."""
    if isinstance(error, SyntaxError):
        return (
            f"{type(error).__name__}: {error.msg} ({Path(error.filename or file).name}, line {error.lineno})"
        )
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not file or frame.filename == file
    ]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}{f': {error!s:.500}' if str(error) else ''}{place}"
