"""How kernels are compiled, in one place, and the names of the array types they take.

Kernels hold no Python objects and allocate nothing, so reference counting is switched off for them: with it numba
adds an atomic increment and decrement around inner calls, which made word scanning three times slower. A kernel must
therefore get its scratch memory from its caller, and must not make arrays or slices of arrays.

The module itself does not import numba, so that the types cost nothing where no kernel is used.

numba looks only at the file of the outermost kernel when it decides whether its cached machine code is still good.
After a change to a function that kernels in other files call, remove the ``__pycache__`` folders.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

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
    import numba

    njit: Any = numba.njit
    compiled: Callable[P, R] = njit(cache=True, nogil=True, _nrt=False, no_cfunc_wrapper=True)(function)
    return compiled
