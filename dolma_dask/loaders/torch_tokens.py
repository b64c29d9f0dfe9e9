"""Token datasets for torch: whole batches as tensors, dealt to the workers of a DataLoader."""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.loaders.token_dataset import TokenDataset, checked_number


def torch_dataset(data: TokenDataset, batch_size: int, *, drop_last: bool = True) -> Any:
    """Return an iterable dataset of batches for torch's DataLoader: dicts of tensors of shape (batch_size, seq_length).

    The loader must not batch again: ``DataLoader(torch_dataset(data, 8), batch_size=None, num_workers=2)``. Its workers take turns, so that the batches
    come in the same order for any number of them. Tensors share the memory of the arrays.

    Parameters
    ----------
    data : TokenDataset
        With the rank and world size of this process.
    batch_size : int
        Samples of a batch of this process.
    drop_last : bool
        End all processes with the last step in which each has a whole batch.

    Returns
    -------
    torch.utils.data.IterableDataset
        Also with ``state_dict(steps)``, where the run is once this process has taken so many batches from its loader, and ``load_state_dict``; and ``len``, the batches
        that are left to this process.

    Raises
    ------
    UsageError
        torch is not installed, or this is no dataset or number of samples.
    """
    if not isinstance(data, TokenDataset):
        raise UsageError(f"data is of type {type(data).__name__}; expected a TokenDataset.")
    return _torch_class()(data, checked_number("batch_size", batch_size, 1), drop_last)


@cache
def _torch_class() -> Any:
    try:
        from torch.utils.data import IterableDataset
    except ImportError as error:
        raise UsageError(
            "torch_dataset needs the package torch, which is not installed; expected it in this environment. `TokenDataset` gives the same as NumPy arrays."
        ) from error
    return type("TorchTokens", (_Tokens, IterableDataset), {"__doc__": _Tokens.__doc__})


_PIPE_BYTES = 1 << 19
"""Bytes of a batch from which on torch's shared memory, which takes 0.6 ms of CPU to set up, costs less than the pipe."""


class _Sent(dict[str, Any]):
    """A batch that goes from a worker as bytes in the pipe, of which the loader gets a dict of tensors."""

    def __init__(self, names: tuple[str, ...], block: NDArray[Any]) -> None:
        super().__init__(_tensors(names, block))
        self._block, self._items = block, list(self.items())

    def __copy__(self) -> "_Sent":
        # torch's own conversion puts the same tensors into a copy
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        items, block = list(self.items()), self._block
        is_same = len(items) == len(self._items) and all(
            mine[1] is own[1] for mine, own in zip(items, self._items, strict=True)
        )
        if not is_same:  # somebody's function has changed it
            return dict, (dict(self),)
        return _received, (tuple(self), block.dtype.str, block.shape, block.tobytes())


def _received(names: tuple[str, ...], dtype: str, shape: tuple[int, ...], content: bytes) -> dict[str, Any]:
    return _tensors(names, np.frombuffer(bytearray(content), dtype).reshape(shape))


def _tensors(names: tuple[str, ...], block: NDArray[Any]) -> dict[str, Any]:
    import torch

    return dict(zip(names, torch.from_numpy(block), strict=True))


class _Tokens:
    """Batches of tokens as tensors; see `torch_dataset`."""

    def __init__(self, data: TokenDataset, batch_size: int, drop_last: bool) -> None:
        self.data, self.batch_size, self.drop_last = data, batch_size, drop_last

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(torch_dataset, drop_last=self.drop_last), (self.data, self.batch_size)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        batches = self.data.batches(self.batch_size, drop_last=self.drop_last, worker=worker, workers=workers)
        for batch in batches:
            block: Any = batch["input_ids"].base  # all arrays of a batch are views of one
            is_small = info is not None and block.nbytes < _PIPE_BYTES
            yield _Sent(tuple(batch), block) if is_small else _tensors(tuple(batch), block)

    def __len__(self) -> int:
        step = self.batch_size * self.data.world_size
        steps, rest = divmod(len(self.data) - self.data.start, step)
        return steps + (not self.drop_last and rest > self.data.rank * self.batch_size)

    def state_dict(self, steps: int) -> dict[str, Any]:
        """Return where the run is once this process, like all others, has taken so many batches since the loader began.

        The loader's workers are ahead, so that only who takes the batches knows.
        """
        steps = checked_number("steps", steps, 0)
        return self.data.state_dict(self.data.start + steps * self.batch_size * self.data.world_size)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `TokenDataset.load_state_dict`; for loaders that begin later."""
        self.data.load_state_dict(state)
