"""Lists of documents as keys in memory, one copy per process: 30 bytes per entry, 70 ns per look-up.

A list travels to workers as its URL and checksum, and is read there when it is first needed.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.errors import SourceChangedError
from dolma_dask.formats.digests import keys128
from dolma_dask.io.id_lists import IdBlock, IdListFile, ListFacts
from dolma_dask.rules.membership import FREE, KeyTable
from dolma_dask.text.kernels import Bools, Positions, Words

KEPT = 4
"""Lists that a process keeps in memory, those last used."""

_kept: "OrderedDict[tuple[str, str], IdList]" = OrderedDict()
_lock = threading.Lock()


class IdList:
    """Keys of a list, by the number of its entries; pickles as the name of the file."""

    def __init__(self, facts: ListFacts, table: KeyTable) -> None:
        self.facts = facts
        self.repeated = table.repeated  # entries that were in the list before
        self._table = table

    def __reduce__(self) -> tuple[object, ...]:
        return list_keys, (self.facts.url, self.facts.checksum)

    def first(self) -> Bools:
        """Tell for each entry (n,) whether no earlier one is equal."""
        return self._table.first()

    def find(self, sources: pa.LargeStringArray, ids: pa.LargeStringArray) -> Iterator[Positions]:
        """Yield for documents (n,) the numbers of the entries that match them, or -1: first of bare ids, then of pairs."""
        if self.facts.bare:
            yield self._numbers(ids, keys128(ids))
        if self.facts.pairs:
            yield self._numbers(ids, keys128(sources, ids))

    def _numbers(self, ids: pa.LargeStringArray, keys: tuple[Words, Words]) -> Positions:
        numbers = self._table.find(*keys)
        if ids.null_count:
            numbers[np.asarray(ids.is_null())] = FREE
        return numbers


def list_keys(url: str, checksum: str | None = None) -> IdList:
    """Read a list into memory, or return it if this process has it; `checksum` is that of the list that is meant.

    Raises `SourceChangedError`: the file is another one by now. Raises `BadRecordError, CorruptFileError, SchemaError`: it cannot be read.
    """
    with _lock:
        if checksum is not None and (url, checksum) in _kept:
            _kept.move_to_end((url, checksum))
            return _kept[url, checksum]
        read = _read(url)
        if checksum is not None and read.facts.checksum != checksum:
            raise SourceChangedError(
                f"{url} was written while it was in use; expected the list that the run began with. Run again when nobody writes to it.",
                url=url,
            )
        _kept[url, read.facts.checksum] = read
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
        return read


def _read(url: str) -> IdList:
    file = IdListFile(url)
    keys = [(np.empty(0, np.uint64), np.empty(0, np.uint64)), *map(entry_keys, file)]
    high, low = (np.concatenate([pair[half] for pair in keys]) for half in (0, 1))
    return IdList(file.facts, KeyTable(high, low))


def entry_keys(block: IdBlock) -> tuple[Words, Words]:
    """Return the keys (n,) of entries: of the id alone, or of source and id; no key of one kind equals one of the other."""
    if block.sources.null_count == len(block):
        return keys128(block.ids)
    high, low = keys128(block.sources, block.ids)
    if block.sources.null_count:
        bare = np.asarray(block.sources.is_null())
        bare_high, bare_low = keys128(block.ids)
        high, low = np.where(bare, bare_high, high), np.where(bare, bare_low, low)
    return high, low


def contains(
    id_list: IdList, sources: pa.LargeStringArray, ids: pa.LargeStringArray
) -> npt.NDArray[np.bool_]:
    """Tell for each document (n,) whether an entry of the list matches it; null ids match nothing."""
    matched: Bools = np.zeros(len(ids), np.bool_)
    for numbers in id_list.find(sources, ids):
        matched |= numbers != FREE
    return matched
