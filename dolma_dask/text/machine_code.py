"""Machine code of kernels, loaded without the compiler.

A kernel that numba has compiled and kept is an object file with one function for Python. numba itself loads it by way of all that compiling needs: its types, its
passes and its targets are 0.1 CPU-seconds, more than many a command works. So the object file lies once more beside what numba keeps, under a name
that tells for which types of arguments and which processor it is, and LLVM links it alone. Whatever is not known for certain here is left to numba: other types, a
setting of numba, a source that has changed, a damaged file.

A file is taken only if its digest, over its name and all of its bytes, is right, and if the source is the text that was imported: what a process that began before an upgrade
compiles after it is kept nowhere.
"""

import builtins
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import NoneType
from typing import Any

import msgspec
import numpy as np
import xxhash
from msgspec import Struct

Call = Callable[..., Any]

_NAMES: dict[type, str] = {
    int: "int64",
    float: "float64",
    bool: "bool",
    NoneType: "none",
    **{kind: kind.__name__ for kind in (np.int64, np.int32, np.uint64, np.uint32, np.uint8, np.float64)},
}
"""Types of arguments besides arrays and tuples, as numba tells them apart."""

_C_WRITEABLE, _F_WRITEABLE, _ALIGNED = 0x401, 0x402, 0x100
"""Flags of arrays (contiguous in the order of C, or else of Fortran, and writeable) that numba tells apart; it has other code for those that are not aligned."""

_WITHOUT_EFFECT = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT"}
"""Settings of numba on which the code of kernels does not depend."""

_OF_OTHER_VERSIONS = (AttributeError, LookupError, TypeError, ValueError, RuntimeError)
"""Errors of a numba that keeps or links code in another way than this module knows: then it does so itself."""


def types_of(arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return what numba compiles by, of each argument; None if one is of no type that is known here."""
    found: list[Any] = []
    for one in arguments:
        kind = type(one)
        if kind is np.ndarray:
            flags = one.flags.num
            if not flags & _ALIGNED:
                return None
            kept = flags & (_C_WRITEABLE if flags & 1 else _F_WRITEABLE)
            found.append((one.dtype, one.dtype.isalignedstruct, one.ndim, kept))
        elif name := _NAMES.get(kind):
            if kind is int and not -(1 << 63) <= one < 1 << 63:
                return None
            found.append(name)
        elif kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            if (inner := types_of(one)) is None:
                return None
            found.append((kind, getattr(kind, "_fields", None), inner))
        else:
            return None
    return tuple(found)


class Source:
    """The file of a kernel, as it was when the kernel was declared."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self._path = function, function.__code__.co_filename
        self._declared = self._status()

    def _status(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._path)  # noqa: PTH116  twice as quick, for each kernel that is imported
        except (OSError, ValueError):  # code without a file
            return None
        return status.st_mtime_ns, status.st_size

    def has_changed(self) -> bool:
        """Tell whether the file is no more what was imported."""
        return self._status() != self._declared

    def digest(self) -> int | None:
        """Return the XXH3 of its text; None if that is not what was imported, or no file."""
        if self._declared is None or self.has_changed():
            return None
        return _digest(self._path, self._declared)


@cache
def _digest(path: str, status: tuple[int, int]) -> int:
    return xxhash.xxh3_64_intdigest(Path(path).read_bytes())


class Code(Struct, frozen=True, array_like=True):
    """Machine code of a kernel for some types of arguments."""

    source: int  # XXH3 of the text that the kernel stands in
    entry: str  # symbol of the function for Python
    environments: list[str]  # symbols of numba's environments, which hold nothing
    needs: list[str]  # symbols that the process has to have
    code: bytes


def load(source: Source, types: tuple[Any, ...]) -> Call | None:
    """Return a kernel for `types`, if its machine code is kept and this process can run it."""
    function = source.function
    if function.__closure__ or not (machine := _machine()):
        return None
    name = machine.name(function, types)
    for folder in _folders(function):
        with suppress(OSError, msgspec.MsgspecError, *_OF_OTHER_VERSIONS):
            found = _read(folder / name)
            if found and found.source == source.digest():
                return machine.link(function, found)
    return None


def keep(source: Source, types: tuple[Any, ...], payload: Any, folder: Path) -> None:
    """Keep machine code for later processes.

    Parameters
    ----------
    source : Source
        Of the kernel.
    types : tuple
        Those of its arguments.
    payload : tuple
        The kernel for these types as numba keeps it.
    folder : Path
        Where it does.
    """
    function, digest = source.function, source.digest()
    if function.__closure__ or digest is None or not (machine := _machine()):
        return
    with suppress(OSError, *_OF_OTHER_VERSIONS):
        if found := _code(machine, digest, payload):
            _write(folder / machine.name(function, types), found)


def _code(machine: "_Machine", source: int, payload: Any) -> Code | None:
    """Return the machine code in what numba keeps; None if it needs more than itself."""
    library, description, environment, *_, initializers, others = payload
    if initializers or any(one.consts for one in (environment, *others)):
        return None
    code, bitcode = library[2]
    names = {one.env_name for one in (environment, *others)}
    needs = machine.undefined(bitcode) - names
    return Code(source, description.llvm_cpython_wrapper_name, sorted(names), sorted(needs), code)


def _read(path: Path) -> Code | None:
    """Return what a file holds; None if it is damaged, or was kept under another name."""
    content = path.read_bytes()
    if content[:8] != _seal(path, content[8:]):
        return None
    return msgspec.msgpack.decode(content[8:], type=Code)


def _seal(path: Path, content: bytes) -> bytes:
    return xxhash.xxh3_64_digest(path.name.encode() + content)


def _write(path: Path, code: Code) -> None:
    import uuid

    content = msgspec.msgpack.encode(code)
    beside = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex[:16]}")
    try:
        beside.write_bytes(_seal(path, content) + content)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _folders(function: Callable[..., Any]) -> Iterator[Path]:
    """Yield the folders in which numba keeps machine code of a kernel: that of its variable, or else beside the source, or the user's own."""
    source = Path(function.__code__.co_filename).absolute().parent
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named, _below(source))
        return
    yield source / "__pycache__"
    home = os.path.expanduser("~")  # noqa: PTH111  pathlib's raises where there is none
    yield Path(os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache", "numba", _below(source))


def _below(source: Path) -> str:
    import hashlib

    return f"{source.name}_{hashlib.sha1(os.fsencode(source)).hexdigest()}"


@cache
def _machine() -> "_Machine | None":
    """Return what links machine code in this process, or None where numba has settings of its own or is not as expected."""
    settings = {name for name in os.environ if name.startswith("NUMBA_")} - _WITHOUT_EFFECT
    try:
        return None if settings or Path(".numba_config.yaml").exists() else _Machine()
    except (ImportError, AttributeError, OSError, RuntimeError):
        return None


class _Machine:
    """LLVM's linker, with what numba brings for running machine code."""

    def __init__(self) -> None:
        import llvmlite
        import llvmlite.binding as llvm

        self._llvm = llvm
        self._functions, helpers = _extension("_dynfunc"), _extension("_helperlib")
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
        features, numba = llvm.get_host_cpu_features().flatten(), _version_of_numba(Path(helpers.__file__))
        self._version = (
            f"{sys.implementation.cache_tag} {llvmlite.__version__} {numba} {triple} {cpu} {features}"
        )
        target = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
        self._environments: dict[str, Any] = {}  # by the entry that uses it
        self._add_symbols(helpers)

    def _add_symbols(self, helpers: Any) -> None:
        """Tell LLVM the names under which numba's code knows its helpers, None and exceptions."""
        self._llvm.add_symbol("_Py_NoneStruct", id(None))
        for name, address in [*helpers.c_helpers.items(), *self._functions.c_helpers.items()]:
            self._llvm.add_symbol(f"numba_{name}", address)
        for value in vars(builtins).values():
            if isinstance(value, type) and issubclass(value, BaseException):
                self._llvm.add_symbol(f"PyExc_{value.__name__}", id(value))

    def name(self, function: Callable[..., Any], types: tuple[Any, ...]) -> str:
        """Return the name of the file with the machine code of a kernel."""
        digest = xxhash.xxh3_64_hexdigest(f"{self._version} {types!r}".encode())
        code = function.__code__
        return f"{Path(code.co_filename).stem}.{function.__qualname__}-{code.co_firstlineno}.{digest}.nbm"

    def undefined(self, bitcode: bytes) -> set[str]:
        """Return the symbols that a module takes from elsewhere."""
        module = self._llvm.parse_bitcode(bitcode)
        values = [*module.functions, *module.global_variables]
        return {one.name for one in values if one.is_declaration and not one.name.startswith("llvm.")}

    def link(self, function: Callable[..., Any], found: Code) -> Call | None:
        """Return the function for Python; None if LLVM would end the process: it lacks something, or has a function of this name, as of a module that was imported again."""
        if found.entry in self._environments or not all(map(self._llvm.address_of_symbol, found.needs)):
            return None
        environment = self._environments[found.entry] = self._functions.Environment(function.__globals__)
        self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(found.code))
        self._engine.finalize_object()
        for name in found.environments:
            self._set(name, id(environment))
        address = self._engine.get_function_address(found.entry)
        module = sys.modules[function.__module__]
        made: Call = self._functions.make_function(
            module, function.__name__, function.__doc__ or "", address, environment, (self._engine,)
        )
        return made

    def _set(self, name: str, value: int) -> None:
        from ctypes import c_size_t

        c_size_t.from_address(self._engine.get_global_value_address(name)).value = value


def _version_of_numba(helpers: Path) -> str:
    """Return what tells one numba from another, without its import."""
    version = xxhash.xxh3_64_hexdigest(helpers.with_name("_version.py").read_bytes())
    return f"{helpers.stat().st_size} {version}"


def _extension(name: str) -> Any:
    """Import an extension module of numba without numba."""
    package = importlib.util.find_spec("numba")
    spec = package and PathFinder.find_spec(f"numba.{name}", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError(f"numba has no {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
