"""Contract of the exchange: a caller brings an emitter of records, a reducer of key ranges, and the types of their records.

A record is a row of unsigned 64-bit words. The first word (and for keys of 16 bytes the second) is the key; records are ordered by all
their words. Inside the exchange a block of records is an array of words, shape (n_records, n_words), so that one set of kernels serves
every type.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dolma_dask.engine import Task
from dolma_dask.errors import DataError, UsageError
from dolma_dask.io.records import FileRecord, InputRecord

Words = npt.NDArray[np.uint64]
"""Records as words, shape (n_records, n_words), C-contiguous."""

Records = npt.NDArray[Any]
"""Records as a structured array, shape (n_records,)."""

LOCATION = "location"
"""Name of the first field of records that go back to their shards: ``shard number << ROW_BITS | row``."""

ROW_BITS = 32
"""Bits of the row in a location."""


class Emitted(Struct, frozen=True):
    """Facts about a task that an emitter returns besides its records.

    Attributes
    ----------
    inputs : tuple of InputRecord
        What was read; paths as in the task's inputs.
    rows : int
        Rows of the inputs.
    counts : dict
        Numbers for the summary.
    info : dict
        Anything small that JSON can hold.
    files : tuple of FileRecord
        Side files, with paths relative to the work folder; they are checked when a run goes on.
    """

    inputs: tuple[InputRecord, ...]
    rows: int
    counts: dict[str, float] = {}
    info: dict[str, Any] = {}
    files: tuple[FileRecord, ...] = ()


class Emitter(Protocol):
    """Makes the records of a task; goes to workers by pickle."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its records: fields of type ``<u8``, the key first.

        Work is shared out by the top bits of the first field: it should be a hash, or its values spread over all 64 bits. Where they are
        not, the result is the same, but a few tasks do all the work, through disk.
        """
        ...

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Call `out` with records, as often as is convenient; side files go below `folder`, through `dolma_dask.io.publish`."""
        ...


class Reducer(Protocol):
    """Turns the sorted records of one range of keys into something smaller; goes to workers by pickle.

    One with ``only_shared = True`` says that records whose first word no other has make no difference to it: most of them are left out, unsorted.
    """

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Type of the records it gives out: fields of type ``<u8``, the first of them their next key, or ``location``; None if it gives out none."""
        ...

    def reduce(self, runs: Iterable[Records], out: Callable[[Records], None]) -> dict[str, Any]:
        """Read the records of a range once, in order, and return what JSON can hold.

        Parameters
        ----------
        runs : iterable of structured arrays
            Sorted, none empty, of bounded size; the records of one key may go on in the next.
        out : callable
            Takes records of `dtype` in any order.
        """
        ...


class ForkingReducer(Protocol):
    """A `Reducer` that gives out records of a second type, which stay in the work folder, cut by their key."""

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """See `Reducer`."""
        ...

    @property
    def beside(self) -> np.dtype[Any]:
        """Type of the records of the second stream: fields of type ``<u8``, the key first."""
        ...

    def reduce(
        self, runs: Iterable[Records], out: Callable[[Records], None], beside: Callable[[Records], None]
    ) -> dict[str, Any]:
        """See `Reducer`; `beside` takes the records of the second stream."""
        ...


def locations(shard: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """Return the locations (count,) of the rows of a shard from `first` on."""
    return np.arange(first, first + count, dtype=np.uint64) + np.uint64(shard << ROW_BITS)


def key_dtype(*ranks: str) -> np.dtype[Any]:
    """Return the type of records with a key of 16 bytes, and words that decide the order before the location does."""
    return np.dtype([(name, "<u8") for name in ("hi", "lo", *ranks, LOCATION)])


def keyed(
    keys: tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]],
    location: npt.NDArray[np.uint64],
    **ranks: Words,
) -> Records:
    """Return the records of `key_dtype` with these words, (n,) each."""
    records = np.empty(len(location), key_dtype(*ranks))
    for name, words in {"hi": keys[0], "lo": keys[1], LOCATION: location, **ranks}.items():
        records[name] = words
    return records


def word_count(dtype: np.dtype[Any]) -> int:
    """Return the words of a record; raise `UsageError` if it has fields that are not 64-bit words, or gaps."""
    kinds = [dtype[name] for name in dtype.names or ()]
    if not kinds or any(kind != np.dtype("<u8") for kind in kinds) or dtype.itemsize != 8 * len(kinds):
        raise UsageError(
            f"records of type {dtype} cannot be exchanged; expected a structured type of packed fields of '<u8', the key first, such as "
            "[('hi', '<u8'), ('lo', '<u8'), ('location', '<u8')]."
        )
    return len(kinds)


def check_locations(dtype: np.dtype[Any]) -> None:
    """Refuse a type of records that cannot go back to their shards, because their first field is not the location."""
    word_count(dtype)
    if (dtype.names or ("",))[0] != LOCATION:
        raise UsageError(
            f"a reducer gives out records of type {dtype}; expected {LOCATION!r} as the first field, by which they go back to their shards."
        )


def to_words(records: Records, dtype: np.dtype[Any]) -> Words:
    """Return records as words, without a copy where they are contiguous; raise `DataError` if they are of another type."""
    if not isinstance(records, np.ndarray) or records.dtype != dtype or records.ndim != 1:
        found = getattr(records, "dtype", type(records).__name__)
        raise DataError(
            f"records of type {found} were given to the exchange; expected a one-dimensional array of {dtype}."
        )
    return np.ascontiguousarray(records).view(np.uint64).reshape(len(records), dtype.itemsize // 8)


def to_records(words: Words, dtype: np.dtype[Any]) -> Records:
    """Return words as records, without a copy."""
    return np.ascontiguousarray(words).view(dtype).reshape(len(words))


def bytes_of(words: Words) -> memoryview:
    """Return the memory of contiguous words, for writing, reading and hashing."""
    return np.ascontiguousarray(words).reshape(-1).view(np.uint8).data
