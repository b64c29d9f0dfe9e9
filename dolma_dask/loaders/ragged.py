"""Documents of folders of ragged token shards by number, as views of mapped files, or as pieces of the files of a store.

Reads our shards and those of the original tool (no record beside them). A local document is a view: no copy, read-only. Mapped files hold no file
descriptor (`dolma_dask.io.mapped`), and a view keeps its file mapped as long as it lives.

Cost of a view: 0.2 us in order or many at a time; about 3 us for ``dataset[i]`` alone.
"""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import index
from types import TracebackType
from typing import Any, Self, SupportsIndex

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.segments import segments_path
from dolma_dask.io import files
from dolma_dask.io.ranges import RangeReader, RemoteItems
from dolma_dask.loaders.index import Int64s, Marks, places, starts_of
from dolma_dask.loaders.shards import Items, ShardTable, find_shards
from dolma_dask.loaders.windows import Windows

BLOCK = 1 << 14
"""Documents whose places are found at a time."""


@dataclass(frozen=True, eq=False)
class OpenShard(Sequence[Items]):
    """The documents of one shard."""

    ids: Any  # (n_tokens,) all ids, mapped from the file, read-only; or `RemoteItems`
    offsets: Int64s  # (n_docs + 1,) document ``i`` is ``ids[offsets[i]:offsets[i + 1]]``

    def __len__(self) -> int:
        return self.offsets.size - 1

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return self.__getitems__(range(*row.indices(len(self))))
        row = checked_row(row, len(self))
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def __getitems__(self, rows: Sequence[int]) -> list[Items]:
        """Return some documents."""
        numbers = checked_rows(rows, len(self))
        return views(self.ids, self.offsets[numbers], self.offsets[numbers + 1])

    def __iter__(self) -> Iterator[Items]:
        for first in range(0, len(self), BLOCK):
            bounds = self.offsets[first : first + BLOCK + 1]
            yield from views(self.ids, bounds[:-1], bounds[1:])


def views(ids: Any, starts: Int64s, stops: Int64s) -> list[Items]:
    """Return ``ids[start:stop]`` for all; pieces of a file of a store are read at once."""
    bounds = list(zip(starts.tolist(), stops.tolist(), strict=True))
    if isinstance(ids, RemoteItems):
        ids.reader.ask(ids.range(*pair) for pair in bounds)
    return [ids[start:stop] for start, stop in bounds]


def checked_row(row: SupportsIndex, count: int) -> int:
    """Return ``row`` counted from the start; IndexError if there are not that many."""
    number = index(row)
    if not -count <= number < count:
        raise IndexError(f"item {number} of {count}; expected {-count} to {count - 1}")
    return number + count if number < 0 else number


def checked_rows(rows: Any, count: int) -> Int64s:
    """Do as `checked_row` for some rows."""
    numbers = np.fromiter(rows, np.int64, len(rows)) if isinstance(rows, range) else np.asarray(rows)
    if numbers.size == 0:
        return np.empty(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise TypeError(
            f"rows of type {numbers.dtype} and shape {numbers.shape}; expected a list of whole numbers"
        )
    numbers = numbers.astype(np.int64, copy=False)
    checked_row(numbers.min(), count)
    checked_row(numbers.max(), count)
    return np.where(numbers < 0, numbers + count, numbers)


class RaggedDataset(Sequence[Items]):
    """Documents of many token shards, in shard order. Make one with `open_ragged`.

    ``len`` is the number of documents, ``dataset[i]`` and ``dataset[i:j]`` are views of their ids; ``__getitems__`` takes a list of numbers.

    Attributes
    ----------
    shards : tuple of TokenShard
    """

    def __init__(
        self, url: str, table: ShardTable, *, partial: bool = False, max_open_shards: int = 1024
    ) -> None:
        self.shards = table.shards
        self._how = (url, partial, max_open_shards)
        self._table = table
        self._starts = starts_of([shard.documents for shard in self.shards])
        self._starts_list: list[int] = self._starts.tolist()
        self.token_starts = starts_of([shard.tokens for shard in self.shards])
        self._reader = RangeReader()
        self._open = lru_cache(max_open_shards)(self._opened)
        self._ids = lru_cache(max_open_shards)(self._ids_of)
        self._bases: tuple[Int64s, dict[int, Any]] = np.zeros(len(self.shards), np.int64), {}
        self.lengths = lru_cache(max_open_shards)(lambda number: self.shards[number].map_lengths())

    def __reduce__(self) -> tuple[Any, ...]:
        # a worker opens the files itself
        return _opened_again, (*self._how, self.fingerprint)

    def __repr__(self) -> str:
        return f"<RaggedDataset: {len(self.shards)} shards, {len(self)} documents, {self.tokens} {self.dtype} tokens>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files and what was read; views of them stay. The dataset opens them again when it is used."""
        for cache in (self._open, self._ids, self.lengths):
            cache.cache_clear()
        self._reader, self._bases = RangeReader(), (np.zeros(len(self.shards), np.int64), {})

    @property
    def tokens(self) -> int:
        """Number of ids in all shards."""
        return int(self.token_starts[-1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the ids, the same in all shards."""
        return self.shards[0].ids.dtype

    @property
    def is_local(self) -> bool:
        """Tell whether the files are mapped."""
        return files.is_local(self._how[0])

    @property
    def key(self) -> str:
        """Digest of the listing: names, sizes and times of all files; for what is kept of them."""
        return self._table.key

    @property
    def is_settled(self) -> bool:
        """Tell whether `key` tells these files from any later version."""
        return self._table.is_settled

    @cached_property
    def fingerprint(self) -> str:
        """Digest of names, counts, types and checksums of all shards: the same for a copy of them anywhere."""
        said = [
            (
                one.names.stem,
                one.documents,
                one.tokens,
                one.ids.dtype.str,
                one.sidecar and one.sidecar.checksums,
            )
            for one in self.shards
        ]
        return xxhash.xxh3_128_hexdigest(msgspec.json.encode(said, order="sorted"))

    @cached_property
    def marks(self) -> Marks:
        """Places of documents, made of all lengths if no earlier process has done so."""
        return Marks.find(self._table)

    def shard(self, number: int) -> OpenShard:
        """Open shard ``number``, with the places of all of its documents, checked; the ones used last stay open."""
        return self._open(checked_row(number, len(self.shards)))

    def _opened(self, number: int) -> OpenShard:
        offsets = self.shards[number].offsets()
        return OpenShard(self._ids(number), offsets)

    def _ids_of(self, number: int) -> Any:
        shard = self.shards[number]
        if self.is_local:
            return shard.map_ids()
        return RemoteItems(self._reader, shard.data_url, shard.ids.dtype, shard.tokens, shard.ids.offset)

    def __len__(self) -> int:
        return self._starts_list[-1]

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return self.__getitems__(range(*row.indices(len(self))))
        row = checked_row(row, len(self))
        number = bisect_right(self._starts_list, row) - 1
        starts, stops = self._places(number, np.array([row - self._starts_list[number]]))
        return self._ids(number)[starts.item() : stops.item()]

    def _places(self, number: int, rows: Int64s) -> tuple[Int64s, Int64s]:
        return places(self.lengths(number), self.marks.of(number), rows)

    def __getitems__(self, rows: Sequence[int]) -> list[Items]:
        """Return some documents; those of one shard are found at once."""
        wanted = checked_rows(rows, len(self))
        numbers = np.searchsorted(self._starts, wanted, side="right") - 1
        order = np.lexsort((wanted, numbers))
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        found: list[Items] = []
        for group in np.split(order, cuts) if len(order) else []:
            number = int(numbers[group[0]])
            starts, stops = self._places(number, wanted[group] - self._starts[number])
            found += views(self._ids(number), starts, stops)
        return [found[place] for place in np.argsort(order).tolist()]

    def __iter__(self) -> Iterator[Items]:
        for number in range(len(self.shards)):
            yield from self._open(number)

    def batches(self, size: int) -> Iterator[list[Items]]:
        """Yield neighbouring documents in lists of `size`; the last may be shorter."""
        if size < 1:
            raise UsageError(f"batches of {size} documents; expected 1 or more.")
        for first in range(0, len(self), size):
            yield self[first : first + size]

    def documents(self, wanted: Iterable[int | str]) -> list[Items]:
        """Return documents by their numbers, or by their ids, as far as the segments beside the shards tell them.

        An id that several documents have gives all of them. All ids of the segments are read: for many look-ups ask for many ids at a time.

        Raises `UsageError`: there are no segments. Raises `DataError`: no document has one of the ids.
        """
        keys = list(wanted)
        if not any(isinstance(key, str) for key in keys):
            return self.__getitems__([index(key) for key in keys])  # type: ignore[arg-type]
        rows = self._rows_of({str(key) for key in keys})
        unknown = [key for key in keys if str(key) not in rows]
        if unknown:
            raise DataError(
                f"{self._how[0]}: {len(unknown)} of {len(keys)} ids belong to no document, such as {unknown[:3]}; expected ids of its documents."
            )
        return self.__getitems__([row for key in keys for row in dict.fromkeys(rows[str(key)])])

    def _rows_of(self, ids: set[str]) -> dict[str, list[int]]:
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        wanted, rows = pa.array(sorted(ids), pa.large_string()), dict[str, list[int]]()
        for shard, start in zip(self.shards, self._starts_list, strict=False):
            url = files.join(shard.folder, segments_path(shard.names.data))
            if files.stat(url) is None:
                raise UsageError(
                    f"{url} does not exist, which tells the ids of documents; expected what ragged writes beside its shards. Make them again, or ask by numbers."
                )
            with files.open_read(url) as file:
                table = pq.read_table(file, columns=["id", "row"])
            table = table.filter(pc.is_in(table["id"], value_set=wanted))
            for key, row in zip(table["id"].to_pylist(), table["row"].to_pylist(), strict=True):
                rows.setdefault(key, []).append(start + row)
        return rows

    def windows(self, length: int) -> Windows:
        """Return windows of `length` neighbouring tokens, whatever documents they are of, as a sequence of views.

        They are cut out of each shard from its beginning; what is behind the last whole window of a shard is left out.
        """
        return Windows(self, length)

    def runs(self, starts: Int64s, sizes: Int64s) -> Iterator[Items]:
        """Yield runs of neighbouring tokens; `starts` count those of all shards, back to back."""
        numbers, firsts, _ = self._located(starts, sizes)
        pieces = (numbers.tolist(), firsts.tolist(), (firsts + sizes).tolist())
        if not self.is_local:
            self._ask(zip(*pieces, strict=True))
        for number, first, stop in zip(*pieces, strict=True):
            run = self._ids(number)[first:stop]
            yield run if len(run) == stop - first else self._across(number, first, stop)

    def addresses(self, starts: Int64s, sizes: Int64s) -> tuple[Int64s, object]:
        """Return where `runs` lie in memory, for kernels, and what must live as long as they are read."""
        if not self.is_local:
            return _addresses_of(list(self.runs(starts, sizes)))
        numbers, firsts, is_over = self._located(starts, sizes)
        bases, mapped = self._bases_of(numbers)
        found = bases[numbers] + firsts * self.dtype.itemsize
        if not is_over.any():
            return found, mapped
        over = np.flatnonzero(is_over)
        found[over], copies = _addresses_of(list(self.runs(starts[over], sizes[over])))
        return found, (mapped, copies)

    def _bases_of(self, numbers: Int64s) -> tuple[Int64s, object]:
        """Return the addresses of the ids of shards, by number, where these are mapped; 0 elsewhere."""
        bases, mapped = self._bases
        missing = numbers[bases[numbers] == 0]
        if len(missing):
            if len(mapped) > self._how[2]:
                self._bases = bases, mapped = np.zeros_like(bases), {}
                missing = numbers
            for number in np.unique(missing).tolist():
                mapped[number] = self._ids(number)
                bases[number] = mapped[number].ctypes.data
        return bases, mapped

    def _located(self, starts: Int64s, sizes: Int64s) -> tuple[Int64s, Int64s, NDArray[np.bool_]]:
        """Return for runs their shard, their first token in it, and whether they go on in the next."""
        numbers = np.searchsorted(self.token_starts[1:-1], starts, side="right")
        return numbers, starts - self.token_starts[numbers], starts + sizes > self.token_starts[numbers + 1]

    def _ask(self, pieces: Iterable[tuple[int, int, int]]) -> None:
        # the part in a following shard is read when it is met
        self._reader.ask(
            self._ids(number).range(first, min(stop, self.shards[number].tokens))
            for number, first, stop in pieces
            if first < min(stop, self.shards[number].tokens)
        )

    def _across(self, number: int, first: int, stop: int) -> NDArray[Any]:
        """Return a run that goes on in the shards that follow."""
        parts = []
        while first < stop:
            part = self._ids(number)[first:stop]
            parts.append(part)
            first, stop, number = 0, stop - first - len(part), number + 1
        return np.concatenate(parts)


def _addresses_of(arrays: list[Items]) -> tuple[Int64s, list[Items]]:
    return np.array([array.ctypes.data for array in arrays], np.int64), arrays


def _opened_again(url: str, partial: bool, max_open_shards: int, fingerprint: str) -> RaggedDataset:
    dataset = open_ragged(url, partial=partial, max_open_shards=max_open_shards)
    if dataset.fingerprint != fingerprint:
        raise DataError(
            f"{url} holds other shards than where it was opened first; expected the same files, as they were. Open it anew, or bring them back.",
            found=dataset.fingerprint,
            expected=fingerprint,
        )
    return dataset


def open_ragged(
    folder_or_pair: str | os.PathLike[str], *, partial: bool = False, max_open_shards: int = 1024
) -> RaggedDataset:
    """Open token shards for reading.

    Parameters
    ----------
    folder_or_pair : str or path
        A flat folder of shards, local or a URL such as ``s3://bucket/tokens``; or one shard by its ``.data.npy`` or ``.len.npy``.
        Local files are mapped. Of a store's files the asked ranges are read, in blocks of 256 KiB of which 128 MiB stay in memory.
    partial : bool
        Read what is there of an unfinished or partly copied set. Without it, a missing or unfinished shard is an
        error, because a subset that looks whole is worse than none.
    max_open_shards : int
        How many shards stay mapped at a time; a mapped file holds no file descriptor.

    Returns
    -------
    RaggedDataset
        ``len`` is the number of documents, ``dataset[i]`` a 1-D view of ids.

    Raises
    ------
    UsageError
        Not a folder or pair, or no shard in it.
    CorruptFileError
        A file is truncated, damaged, left over from a writer that was interrupted, or missing.
    DataError
        Shards were made with different tokenizers or types.

    Notes
    -----
    The first process that opens a folder reads the head of every file, and the lengths when documents are first asked for by number; what they say lies in
    the user's cache (``~/.cache/dolma_dask``) under the names, sizes and times of the files, where later processes find it.
    """
    if not isinstance(folder_or_pair, str | os.PathLike):
        raise UsageError(
            f"the token shards are of type {type(folder_or_pair).__name__}; expected the path of a folder, or of a .data.npy or .len.npy file."
        )
    url = files.normalize(os.fspath(folder_or_pair))
    table = find_shards(url, partial=partial)
    return RaggedDataset(url, table, partial=partial, max_open_shards=max_open_shards)
