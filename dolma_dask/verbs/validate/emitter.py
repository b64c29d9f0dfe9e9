"""What the exchange gets of each shard: the keys of its documents with their places; and how a file's order differs from an earlier one."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dolma_dask.engine import Task
from dolma_dask.exchange.contract import Emitted, Records
from dolma_dask.io.records import InputRecord
from dolma_dask.verbs.validate.keys import EARLIER, RECORD, ROW_BITS, Keys, KeyWork
from dolma_dask.verbs.validate.order import order_break


@dataclass(frozen=True)
class KeyEmitter:
    """Gives the exchange the keys of documents; for a file and its earlier version it also compares their order.

    ``task.work`` is a tuple of `KeyWork`, and ``info["orders"]`` has an item for each: None, or count, row, its row in the earlier version,
    and the same of the row before it.
    """

    dtype: np.dtype[Any] = field(default=RECORD)

    def emit(self, task: Task, out: Callable[[Records], None], folder: str) -> Emitted:
        """Read one task; see `dolma_dask.exchange`."""
        works: Iterable[KeyWork] = task.work
        inputs: list[InputRecord] = []
        told = [_emit(work, out, inputs) for work in works]
        orders = [None if order is None else list(order) for _, order in told]
        return Emitted(tuple(inputs), sum(rows for rows, _ in told), {}, {"orders": orders})


def _emit(
    work: KeyWork, out: Callable[[Records], None], inputs: list[InputRecord]
) -> tuple[int, tuple[int, ...] | None]:
    """Give out the keys of a shard and its earlier version; return their rows and what is wrong with their order."""
    is_pair = work.ours is not None and work.theirs is not None
    sides: list[list[Keys]] = [[], []]
    rows = 0
    for number, first_row, side, keys in work.blocks(inputs):
        for as_side in (0, 1) if work.is_alone else (side,):
            records = _records(keys, number, first_row, as_side)
            if len(records):
                out(records)
        rows += len(keys)
        if is_pair:
            sides[side].append(keys)
    return rows, order_break(*map(_joined, sides)) if is_pair else None


def _joined(blocks: list[Keys]) -> Keys:
    return np.concatenate(blocks) if blocks else np.empty((0, 2), np.uint64)


def _records(keys: Keys, number: int, first_row: int, side: int) -> Records:
    """Return the records of consecutive rows, without those that have no identity."""
    records = np.empty(len(keys), RECORD)
    records["hi"], records["lo"] = keys[:, 0], keys[:, 1]
    base = (number << ROW_BITS) + first_row + (EARLIER if side else 0)
    records["location"] = np.uint64(base) + np.arange(len(keys), dtype=np.uint64)
    return records[keys.any(axis=1)]
