"""Folds: sums over shards that are only read. They are joined with ``+``, in the workers and here, in the order of the shards if that matters.

A question declares what is counted in one shard (`Fold`); `fold` owns tasks, progress, failures and the order. Nothing is written, no journal is kept.
`tests/unit/example_fold.py` is a question in half a page.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Generic, Protocol, Self, TypeVar

import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine.attempts import log_apart
from dolma_dask.engine.batches import JOINED_BYTES, MOST_JOINED
from dolma_dask.engine.mapping import gather
from dolma_dask.engine.plan import Readable, Task
from dolma_dask.io.files import Input, grouped
from dolma_dask.options.groups import PlaceOptions
from dolma_dask.reading.columns import Columns
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.rules.rules import Rule
from dolma_dask.text.columns import validity

MAX_TASKS = 256
"""Tasks of a fold, each with sums that travel; where there are more shards, several share one."""


class Addable(Protocol):
    """Sums that can be joined. They must pickle, and stay small: those of every task reach this process."""

    def __add__(self, other: Self, /) -> Self: ...


Sums = TypeVar("Sums", bound=Addable)
Piece = TypeVar("Piece", bound=Readable)
Counted = TypeVar("Counted", contravariant=True)
Counts = TypeVar("Counts", bound=Addable, covariant=True)
Key = TypeVar("Key")
Value = TypeVar("Value", bound=Addable)


class Fold(Protocol[Counted, Counts]):
    """A counting of rows; small, goes to workers."""

    @property
    def verb(self) -> str: ...  # of the question, for progress, failures and the cost of a byte

    def start(self) -> Counts:
        """Return the sums of no shards."""
        ...

    def count(self, shard: Counted, /) -> Counts:
        """Return the sums of one shard; raise to fail it."""
        ...


class JoiningFold(Fold[Counted, Counts], Protocol):
    """A counting that can take several small shards as one, which must give the same sums as one after another."""

    def count_joined(self, shards: Sequence[Counted], /) -> Counts:
        """Return the sums of several shards. Raise if anything is unusual: each is counted alone then."""
        ...


def fold(
    counting: Fold[Piece, Sums], shards: Sequence[Piece], options: PlaceOptions, *, in_order: bool = True
) -> Sums:
    """Return the sums of all shards.

    Raises `StageError`: some shards failed. Raises `InterruptedStageError`: ctrl-C.

    Parameters
    ----------
    counting : Fold
        What is counted in a shard.
    shards : sequence of Readable
        With names that differ; for columns of a dataset see `shards_of`.
    options : PlaceOptions
        How to run.
    in_order : bool
        Join the sums in the order of the shards, for which those of large shards, which are counted first, wait. False: as they come, for sums that
        are the same in any order, and not tiny.
    """
    tasks = _tasks(shards)
    start = counting.start()
    sums = _InOrder(start, [task.shard for task in tasks]) if in_order else _Total(start)
    gather(_FoldStage(counting), tasks, options, sums.add)
    return sums.total


def shards_of(columns: Columns, *, exact: bool = True) -> list[AlignedShard]:
    """Return columns shard by shard as they are read for `fold`; with `exact`, numbers keep all digits."""
    return [columns.work(shard, exact=exact, identities=True) for shard in columns.dataset.shards]


def readable_rows(shard: AlignedShard) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the documents that could be read."""
    for block in shard.open():
        readable = validity(block.batch.column("id"))
        yield block.batch if readable.all() else block.batch.filter(pa.array(readable))


def mask_of(rule: Rule, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return where a rule over full names holds."""
    columns: Mapping[str, pa.Array] = {name: batch.column(name) for name in rule.names}
    return rule.mask(columns or {"": pa.nulls(batch.num_rows)})


def added(sums: Mapping[Key, Value], more: Mapping[Key, Value]) -> dict[Key, Value]:
    """Return the sums by key of both."""
    both = dict(sums)
    for key, value in more.items():
        both[key] = both[key] + value if key in both else value
    return both


class _FoldStage(Struct, Generic[Piece, Sums], frozen=True):
    """The work on the shards of a task, for `gather`."""

    counting: Fold[Piece, Sums]

    @property
    def verb(self) -> str:
        return self.counting.verb

    def run_shard(self, task: Task) -> tuple[str, Sums]:
        return task.shard, reduce(add, self._counted(task.work))

    def _counted(self, shards: Sequence[Piece]) -> Iterator[Sums]:
        joined = getattr(self.counting, "count_joined", None)
        most = MOST_JOINED if joined else 1
        for group in grouped(shards, _bytes_of, JOINED_BYTES, most):
            try:
                sums = joined(group) if joined and len(group) > 1 else None
            except Exception as error:  # noqa: BLE001  whose it is shows when each is counted alone
                log_apart(self.verb, [shard.name for shard in group], error)
                sums = None
            yield from map(self.counting.count, group) if sums is None else [sums]


class _Total(Generic[Sums]):
    """Adds up the sums of tasks as they come."""

    def __init__(self, total: Sums) -> None:
        self.total = total

    def add(self, arrived: tuple[str, Sums]) -> None:
        self.total = self.total + arrived[1]


class _InOrder(_Total[Sums]):
    """Adds up the sums of tasks in their order, whatever order they arrive in; those that came too early wait."""

    def __init__(self, total: Sums, names: Sequence[str]) -> None:
        super().__init__(total)
        self._names = iter(names)
        self._next = next(self._names, None)
        self._waiting: dict[str | None, tuple[str, Sums]] = {}

    def add(self, arrived: tuple[str, Sums]) -> None:
        self._waiting[arrived[0]] = arrived
        while self._next in self._waiting:
            super().add(self._waiting.pop(self._next))
            self._next = next(self._names, None)


def _tasks(shards: Sequence[Readable]) -> list[Task]:
    """Return at most `MAX_TASKS` tasks of equally many shards."""
    size = max(-(-len(shards) // MAX_TASKS), 1)
    groups = (tuple(shards[start : start + size]) for start in range(0, len(shards), size))
    return [Task(group[0].name, (), _inputs(group), group) for group in groups]


def _bytes_of(shard: Readable) -> int:
    return sum(item.info.bytes for item in shard.inputs)


def _inputs(shards: Sequence[Readable]) -> tuple[Input, ...]:
    """Return the files of some shards, each once."""
    return tuple({item.url: item for shard in shards for item in shard.inputs}.values())
