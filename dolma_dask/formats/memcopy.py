"""One `memcpy` for kernels: copy bytes between two byte arrays at any offsets.

numba turns ``target[p:p + n] = source[a:a + n]`` into a loop with overlap checks: measured 2 to 4 GB/s, and two seconds
to compile. This intrinsic calls the C library: 18 GB/s for pieces of 40 bytes, 58 GB/s for texts of 2.7 kB.
"""

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_memcpy: Any = cgutils.raw_memcpy


def _copy_bytes(
    typing_context: Any, target: Any, target_at: Any, source: Any, source_at: Any, count: Any
) -> Any:
    """Copy ``source[source_at:source_at + count]`` to ``target[target_at:]``, inside ``@njit`` functions only.

    Both are contiguous uint8 arrays of one dimension that do not overlap. Nothing is checked, neither bounds nor signs.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, args[0]).data
        origin = context.make_array(signature.args[2])(context, builder, args[2]).data
        _memcpy(builder, builder.gep(to, [args[1]]), builder.gep(origin, [args[3]]), args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), codegen


copy_bytes: Any = intrinsic(_copy_bytes)
