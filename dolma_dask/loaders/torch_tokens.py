"""Token datasets for torch: whole batches as tensors, dealt to the workers of a DataLoader."""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from dolma_dask.errors import UsageError
from dolma_dask.loaders.token_dataset import TokenDataset


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
        torch is not installed.
    """
    return _torch_class()(data, batch_size, drop_last)


@cache
def _torch_class() -> Any:
    try:
        from torch.utils.data import IterableDataset
    except ImportError as error:
        raise UsageError(
            "torch_dataset needs the package torch, which is not installed; expected it in this environment. `TokenDataset` gives the same as NumPy arrays."
        ) from error
    return type("TorchTokens", (_Tokens, IterableDataset), {"__doc__": _Tokens.__doc__})


class _Tokens:
    """Batches of tokens as tensors; see `torch_dataset`."""

    def __init__(self, data: TokenDataset, batch_size: int, drop_last: bool) -> None:
        self.data, self.batch_size, self.drop_last = data, batch_size, drop_last

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(torch_dataset, drop_last=self.drop_last), (self.data, self.batch_size)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        import torch
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        batches = self.data.batches(self.batch_size, drop_last=self.drop_last, worker=worker, workers=workers)
        for batch in batches:
            yield {name: torch.from_numpy(array) for name, array in batch.items()}

    def __len__(self) -> int:
        step = self.batch_size * self.data.world_size
        steps, rest = divmod(len(self.data) - self.data.start, step)
        return steps + (not self.drop_last and rest > self.data.rank * self.batch_size)

    def state_dict(self, steps: int) -> dict[str, Any]:
        """Return where the run is once this process, like all others, has taken so many batches since the loader began.

        The loader's workers are ahead, so that only who takes the batches knows.
        """
        return self.data.state_dict(self.data.start + steps * self.batch_size * self.data.world_size)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `TokenDataset.load_state_dict`; for loaders that begin later."""
        self.data.load_state_dict(state)
