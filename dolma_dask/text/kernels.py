"""Compilation of kernels and machine operations, in one place, and the names of the array types they take.

Kernels hold no Python objects and allocate nothing, so reference counting is switched off for them: with it numba
adds an atomic increment and decrement around inner calls, which made word scanning three times slower. A kernel must
therefore get its scratch memory from its caller, and must not make arrays or slices of arrays.

numba (0.15 CPU-seconds to import) is loaded when a kernel is called whose machine code is not on disk, or not for arguments of these types: so kernels and
machine operations are declared with the decorators of this module and never with numba's. `machine_code` links what is on disk. Where it cannot, numba
loads the code without what only compiling needs: its typing registries, another 0.2 CPU-seconds, for which it also imports scipy.

numba looks only at the file of the outermost kernel when it decides whether its cached machine code is still good.
After a change to a function that kernels in other files call, remove the ``__pycache__`` folders.
"""

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, update_wrapper
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from dolma_dask import metering
from dolma_dask.text import machine_code

P = ParamSpec("P")
R = TypeVar("R")

Int = int | np.int64
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` on its first call, keep the machine code on disk, run without the GIL. For Python and for other kernels;
    ``.py_func`` is `function`, ``.compiled`` the numba dispatcher.
    """
    return cast(Callable[P, R], _Kernel(function))


def operation(result: type[R], *arguments: type) -> Callable[[Callable[..., Any]], Callable[..., R]]:
    """Make a machine operation for kernels of a function ``(ir, builder, *values)`` that emits its LLVM instructions.

    Types are int (64 bits), numpy.uint64 or float; a result may be None's type, an argument numpy.ndarray.
    """
    return lambda emit: cast(
        Callable[..., R], _Lazy(emit, lambda function: _intrinsic(function, result, arguments))
    )


_NUMBA_NAMES = {int: "int64", np.uint64: "uint64", float: "float64", type(None): "void"}


class _Lazy:
    """A numba object that is made when it is first called, or first compiled into another kernel."""

    def __init__(self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]) -> None:
        update_wrapper(cast(Any, self), function)
        self.py_func, self._make = function, make
        self._made: Any = None

    @property
    def compiled(self) -> Any:
        """The numba object."""
        if self._made is None:
            import numba  # noqa: F401  before the lock: importing takes locks too

            with _making:
                self._made = self._made or self._make(self.py_func)
        return self._made

    @property
    def _numba_type_(self) -> Any:
        """Type of this global for numba, which asks for it when it compiles a kernel that uses it."""
        from numba.core.registry import cpu_target

        context, made = cpu_target.typing_context, self.compiled
        context.refresh()
        return context.resolve_value_type(made)

    def __reduce__(self) -> str:
        return str(self.py_func.__qualname__)


class _Kernel(_Lazy):
    """A kernel: calls machine code that is kept, without numba, and numba's dispatcher for what is not; by types of arguments in `calls`."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._source = machine_code.Source(function)
        super().__init__(function, lambda _: _dispatcher(self._source))
        self.calls: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        types = machine_code.types_of(args)
        call = self.calls.get(types)
        return self._first(types, args) if call is None else call(*args)

    def _first(self, types: Any, args: tuple[Any, ...]) -> Any:
        """Call it with types that are new to this process."""
        if types is None:
            return self.compiled(*args)
        with _making:
            call = self.calls.get(types) or machine_code.load(self._source, types)
            if call is not None:
                self.calls[types] = call
        if call is not None:
            return call(*args)
        result = self.compiled(*args)
        self.compiled.keep(types, args)
        self.calls[types] = self.compiled
        return result


_making = threading.RLock()
os.register_at_fork(  # a fork while another thread holds it would wait for ever
    before=_making.acquire, after_in_parent=_making.release, after_in_child=_making.release
)


def _dispatcher(source: machine_code.Source) -> Any:
    import numba
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import CPUDispatcher

    options = {"nopython": True, "nogil": True, "_nrt": False, "no_cfunc_wrapper": True}
    compiled: Any = CPUDispatcher(source.function, targetoptions=options)
    if source.has_changed():
        compiled.keep = lambda types, args: None
        return compiled
    cache = compiled._cache = _cache_class()(source.function)
    compile_or_load = compiled.compile

    def compile_once(types: Any) -> Any:
        with global_compiler_lock, _compiling_allowed(), cache:
            return compile_or_load(types)

    def keep(types: Any, args: tuple[Any, ...]) -> None:
        given = tuple(map(numba.typeof, args))
        found = compiled.overloads.get(given)
        payload = found and cache.payload(given, found.target_context)
        if payload:
            with _making:
                machine_code.keep(source, types, payload, Path(cache.cache_path))

    compiled.compile, compiled.keep = compile_once, keep
    return compiled


@contextmanager
def _compiling_allowed() -> Iterator[None]:
    """Compile in this block, also where users have told numba to leave their functions alone (``NUMBA_DISABLE_JIT``): kernels do not run in Python."""
    import numba

    config: Any = numba.config
    disabled, config.DISABLE_JIT = config.DISABLE_JIT, 0
    try:
        yield
    finally:
        config.DISABLE_JIT = disabled


_OF_DAMAGE = (
    pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, MemoryError, TypeError, ValueError,
)  # fmt: skip
"""Errors of pickles that are cut off, or hold other bytes."""


@cache
def _cache_class() -> Any:
    """Return numba's cache on disk without the preparation of its context, which compiling does for itself.

    A kernel that it lacks is compiled by one process, for which the others wait; with the cache as a context that ends with the attempt. What an
    installation that may not be written holds is read; other kernels then lie in the user's cache, or nowhere.
    """
    from numba.core import caching
    from numba.core.runtime.nrt import rtsys

    class Installed(caching.InTreeCacheLocator):
        def ensure_cache_path(self) -> None:
            """Take the folder as it is."""

    class KernelPlaces(caching.CompileResultCacheImpl):
        _locator_classes = [*caching.CompileResultCacheImpl._locator_classes, Installed]  # noqa: RUF012  numba's own

    class KernelCache(caching.FunctionCache):
        _impl_class = KernelPlaces

        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__(function)  # type: ignore[no-untyped-call]
            self._places = [self._cache_file]
            if isinstance(self._impl.locator, caching.UserWideCacheLocator):
                folder = Path(function.__code__.co_filename).parent / "__pycache__"
                stamp = self._impl.locator.get_source_stamp()  # type: ignore[no-untyped-call]
                place: Any = caching.IndexDataCacheFile
                self._places.insert(0, place(str(folder), self._impl.filename_base, stamp))

        def __enter__(self) -> None:
            self._attempt = ExitStack()

        def __exit__(self, *_: object) -> None:
            self._attempt.close()

        def payload(self, types: Any, target_context: Any) -> Any:
            """Return what is kept of a kernel for some types; None if nothing is."""
            key = self._index_key(types, target_context.codegen())  # type: ignore[no-untyped-call]
            for place in self._places:
                with suppress(OSError, *_OF_DAMAGE):
                    if (found := place.load(key)) is not None:  # type: ignore[no-untyped-call]
                        return found
            return None

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            rtsys.initialize(target_context)
            found = self._load(sig, target_context)
            if found is None:
                self._attempt.enter_context(metering.compiling())
                self._attempt.enter_context(metering.without_collection())
                self._attempt.enter_context(_locked(self._cache_file._index_path))
                found = self._load(sig, target_context)
            return found

        def save_overload(self, sig: Any, data: Any) -> None:
            with suppress(OSError):
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]

        def _load(self, sig: Any, target_context: Any) -> Any:
            found = None
            for place in self._places:  # the last one is written
                self._cache_file = place
                with suppress(OSError), self._guard_against_spurious_io_errors():
                    try:
                        found = found or self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
                    except _OF_DAMAGE:
                        place.flush()  # type: ignore[no-untyped-call]  # it is compiled again
            return found

    return KernelCache


@contextmanager
def _locked(index: str) -> Iterator[None]:
    """Keep other processes of this host from compiling the kernel with this index file; where locks do not work, each compiles for itself.

    Kernels wait only for those that they call, so that no two processes wait for each other.
    """
    path = Path(f"{index}.lock")
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            path.parent.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context(path.open("a")), fcntl.LOCK_EX)
            stack.callback(path.unlink, missing_ok=True)
        yield


def _intrinsic(emit: Callable[..., Any], result: type, arguments: tuple[type, ...]) -> Any:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    names = [_NUMBA_NAMES.get(kind) for kind in arguments]

    def typed(typing_context: Any, *given: Any) -> Any:
        own_types = (getattr(types, name) if name else own for name, own in zip(names, given, strict=True))
        return getattr(types, _NUMBA_NAMES[result])(*own_types), generate

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = emit(ir, builder, *values)
        return context.get_dummy_value() if made is None else made

    shape, named = signature(emit), cast(Any, typed)
    named.__name__, named.__signature__ = (
        emit.__name__,
        shape.replace(parameters=list(shape.parameters.values())[1:]),
    )
    return intrinsic(typed)
