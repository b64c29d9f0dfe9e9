"""The arguments of an exchange, and what follows from them alone: how records are cut, keys of the passes, limits of memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dolma_dask.engine import RunOptions, Task
from dolma_dask.errors import UsageError
from dolma_dask.exchange import buckets
from dolma_dask.exchange.buckets import Bucketing
from dolma_dask.exchange.contract import Emitter, Reducer, check_output, word_count
from dolma_dask.exchange.folders import is_for_exchange
from dolma_dask.exchange.phases import COLLATE, REDUCE, SCATTER, Limits
from dolma_dask.journal import work_key

VERSION = 2
"""Raised when the files of an exchange change for the same records."""

RANGE_BYTES = 32 << 20
"""Records of a range that are sorted in memory; a task needs twice as much."""

SEGMENT_BYTES = 16 << 20
"""Records that a task collects before it writes them; it needs three times as much."""

CHUNK_BYTES = 2 << 20
"""Records that a reducer gets at once."""

BUCKETS = 1024
"""Buckets of keys, the least that a range can be."""

Shuffle = Literal["files", "p2p"]

_PASSES = {SCATTER: "scatter", REDUCE: "reduce", COLLATE: "collate"}


@dataclass(frozen=True)
class Wanted:
    """The arguments of `exchange`."""

    emitter: Emitter
    tasks: Sequence[Task]
    reducer: Reducer
    folder: str
    key: str
    shards: int
    options: RunOptions
    shuffle: Shuffle
    verb: str
    range_bytes: int
    segment_bytes: int
    buckets: int

    @property
    def words(self) -> int:
        """Words of an emitted record."""
        return word_count(self.emitter.dtype)

    @property
    def keys(self) -> Bucketing:
        """How emitted records are cut."""
        return buckets.of_keys(self.buckets)

    @property
    def places(self) -> Bucketing:
        """How the records that the reducer gives out are cut."""
        return buckets.of_places(self.shards)

    def limits(self, words: int) -> Limits:
        """Return how many records of so many words may be in memory."""
        sizes = (self.segment_bytes, self.range_bytes, min(CHUNK_BYTES, self.range_bytes))
        return Limits(*(max(size // (8 * words), 1) for size in sizes))

    def pass_verb(self, phase: str) -> str:
        """Return the name of a pass: of its journal, and before its progress bar."""
        return f"{self.verb}-{_PASSES[phase]}"

    def work_key(self, phase: str, *more: Any) -> str:
        """Return the key of a pass."""
        dtypes = [str(self.emitter.dtype.descr), str(self.reducer.dtype and self.reducer.dtype.descr)]
        sizes = [self.range_bytes, self.segment_bytes, self.buckets, self.shards]
        return work_key(phase, VERSION, {"key": self.key, "dtypes": dtypes, "sizes": sizes, "more": more})

    def check(self) -> None:
        """Refuse arguments that cannot work.

        Raises
        ------
        UsageError
            Two tasks of one name, types that are no words, a rehearsal, an unknown shuffle, a folder that is not for exchanges.
        """
        if not is_for_exchange(self.folder):
            raise UsageError(
                f"{self.folder} is no place for an exchange, which removes its folder; expected <dataset>/_exchange/<verb>-<name>/<key>."
            )
        names = [task.shard for task in self.tasks]
        if len(set(names)) < len(names):
            raise UsageError("two tasks of an exchange have the same name; expected names that differ.")
        if self.options.dry_run:
            raise UsageError("an exchange has no rehearsal; expected dry_run to be answered by the verb.")
        if self.shuffle not in ("files", "p2p"):
            raise UsageError(f"shuffle={self.shuffle!r}; expected 'files' or 'p2p'.")
        word_count(self.emitter.dtype)
        buckets.of_keys(self.buckets)
        if self.reducer.dtype is not None:
            check_output(self.reducer.dtype)
