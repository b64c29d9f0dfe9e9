"""How kernels are compiled, in one place, and the names of the array types they take.

Kernels hold no Python objects and allocate nothing, so reference counting is switched off for them: with it numba
adds an atomic increment and decrement around inner calls, which made word scanning three times slower. A kernel must
therefore get its scratch memory from its caller, and must not make arrays or slices of arrays.

numba itself (0.15 CPU-seconds to import, more to make its dispatchers) is loaded when the first kernel is called: a command with nothing
to do never needs it. So kernels and intrinsics are declared with the decorators of this module and never with numba's.

numba looks only at the file of the outermost kernel when it decides whether its cached machine code is still good.
After a change to a function that kernels in other files call, remove the ``__pycache__`` folders.
"""

import threading
from collections.abc import Callable
from functools import update_wrapper
from inspect import Parameter, Signature
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

P = ParamSpec("P")
R = TypeVar("R")

Int = int | np.int64
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


_making = threading.RLock()


class _Lazy:
    """A numba object that is made when it is first called, or first compiled into another kernel."""

    def __init__(self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]) -> None:
        self.py_func = function
        self._make = make
        self._made: Any = None
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        return (self._made or self.made)(*args)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_made", "_make"):
            raise AttributeError(name)
        return getattr(self.made, name)

    @property
    def made(self) -> Any:
        """The numba object."""
        import numba  # noqa: F401  before the lock: importing takes locks too

        with _making:
            if self._made is None:
                self._made = self._make(self.py_func)
        return self._made

    @property
    def _numba_type_(self) -> Any:
        """What numba asks of a global that it does not know."""
        from numba.core.registry import cpu_target

        context = cpu_target.typing_context
        made = self.made
        context.refresh()
        return context.resolve_value_type(made)

    def __reduce__(self) -> str:
        return str(self.py_func.__qualname__)


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` on its first call, keep the machine code on disk, run without the GIL.

    Parameters
    ----------
    function : callable
        Takes arrays and numbers; allocates nothing.

    Returns
    -------
    callable
        With the attributes of a numba dispatcher; ``.py_func`` is `function`.
    """
    return cast(Callable[P, R], _Lazy(function, lambda it: _njit(it, _nrt=False, no_cfunc_wrapper=True)))


def allocating_kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Do the same for a function that makes arrays or slices of arrays, and so counts references to them."""
    return cast(Callable[P, R], _Lazy(function, _njit))


def _njit(function: Callable[..., Any], **options: bool) -> Any:
    import numba

    njit: Any = numba.njit
    return njit(cache=True, nogil=True, **options)(function)


def intrinsic(signature: str) -> Callable[[Callable[..., Any]], Any]:
    """Declare a machine operation for kernels: the decorated function emits the LLVM code of one call.

    Parameters
    ----------
    signature : str
        Types of the result and of the arguments as numba names them, such as ``"uint64(array, int64)"``; ``array`` is an array of any type.

    Examples
    --------
    >>> @intrinsic("int64(int64)")
    ... def bit_count(context, builder, signature, args):
    ...     return builder.ctpop(args[0])
    """
    return lambda generate: _Lazy(generate, lambda function: _intrinsic(function, signature))


def _intrinsic(generate: Callable[..., Any], signature: str) -> Any:
    from numba import extending, types

    result, _, rest = signature.rstrip(")").partition("(")
    names = [name.strip() for name in rest.split(",")]

    def typed(typing_context: Any, *given: Any) -> Any:
        kinds = [
            kind if name == "array" else getattr(types, name) for name, kind in zip(names, given, strict=True)
        ]
        kind = kinds[names.index("array")] if result == "array" else getattr(types, result)
        return kind(*kinds), generate

    parameters = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD)
        for name in ("typing_context", *(f"a{at}" for at in range(len(names))))
    ]
    typed.__name__, typed.__doc__ = generate.__name__, generate.__doc__
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    make: Any = extending.intrinsic
    return make(typed)
