"""Columns of kind ``labels`` as a column for each label, under which readers find it, since readers know keys and no lists of labels.

Cost: one sort of what a block has found, and an array of a block's length for each label of it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from dolma_dask.errors import UsageError
from dolma_dask.taggers.base import SPANS

Numbered = Literal["document", "spans"]


def by_label(column: pa.Array, known: Sequence[str] = ()) -> Mapping[str, tuple[Numbered, pa.Array]]:
    """Return the kind and the column (n,) of each label, by the name that it has in keys; null for documents that lack it.

    Labels come in the order of `known`, which all have a column; others that are found follow in that of their names. A document with two numbers of one name has the
    last one.
    """
    is_map = pa.types.is_map(column.type)
    offsets = np.asarray(column.offsets) if len(column) else np.zeros(1, np.int32)
    parents = np.repeat(np.arange(len(column)), np.diff(offsets))
    if is_map:
        inside = slice(int(offsets[0]), int(offsets[-1]))
        labels, found = column.keys[inside], column.items[inside]
    else:
        found = column.flatten()
        labels = found.field("label")
        found = pa.StructArray.from_arrays(
            [found.field(name) for name in ("start", "end", "score")], fields=list(SPANS.value_type)
        )
    encoded = labels.dictionary_encode()
    spelled = [label_name(label) for label in encoded.dictionary.to_pylist()]
    names = [*dict.fromkeys([*map(label_name, known), *sorted(spelled)])]
    by_name = {name: number for number, name in enumerate(names)}
    numbers = np.array([by_name[name] for name in spelled], np.int64)[np.asarray(encoded.indices, np.int64)]
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(names) + 1))
    return {
        name: _column_of(order[ends[number] : ends[number + 1]], parents, found, len(column), is_map=is_map)
        for name, number in by_name.items()
    }


def label_name(label: str) -> str:
    """Return a label as it stands in keys, behind the names of set and tagger, so that it may begin with a digit."""
    return re.sub(r"[^A-Za-z0-9_]", "_", label) or "_"


def check_names(labels: Sequence[str], what: str) -> None:
    """Refuse (`UsageError`) labels that have one name in keys: numbers of all but one would be lost."""
    known: dict[str, str] = {}
    for label in labels:
        name = label_name(label)
        if name in known:
            raise UsageError(
                f"{what} {known[name]!r} and {label!r} would both be written as {name!r}; expected names that differ in letters, digits or _. Rename one of them."
            )
        known[name] = label


def _column_of(
    chosen: np.ndarray, parents: np.ndarray, found: pa.Array, rows: int, *, is_map: bool
) -> tuple[Numbered, pa.Array]:
    """Return the column of what is `chosen` among all that was found, each in the row of its parent."""
    owners, values = parents[chosen], found.take(pa.array(chosen))
    offsets = np.searchsorted(owners, np.arange(rows + 1)).astype(np.int32)
    lacks = np.diff(offsets) == 0
    if is_map:
        last = pa.array(np.maximum(offsets[1:] - 1, 0), mask=lacks)
        return "document", values.take(last) if len(values) else pa.nulls(rows, pa.float64())
    mask = pa.array(lacks)
    return "spans", pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)
