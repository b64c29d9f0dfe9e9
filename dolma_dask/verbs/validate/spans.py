"""Spans against texts: every span of every row lies inside of its text, and every score is a finite number.

One kernel over the buffers of a list column: some 1 ns per span. Only what is wrong becomes Python objects.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Bools, Counts, Floats, kernel
from dolma_dask.verbs.validate.problems import KINDS, Problem, Problems

OUTSIDE, NOT_FINITE, SEVERAL = 0, 1, 2
_KINDS = ("span_outside_text", "not_finite", "not_document_level")


@dataclass(frozen=True)
class BadSpans:
    """What is wrong with the spans of one column.

    Attributes
    ----------
    counts : numpy.ndarray of int64
        (3,) spans outside of their text, scores that are no finite numbers, rows with other than one span of the whole text.
    rows, items : numpy.ndarray of int64
        (3, keep) row in the column and position among its spans of the first of each.
    """

    counts: Counts
    rows: Counts
    items: Counts


def find_bad_spans(column: pa.Array, lengths: Counts, *, is_document: bool, keep: int) -> BadSpans:
    """Check the spans of a column.

    Parameters
    ----------
    column : pyarrow.ListArray
        (n,) of ``list<struct<start: int64, end: int64, score: float64>>``; null rows are passed over.
    lengths : numpy.ndarray of int64
        (n,) code points of each text.
    is_document : bool
        Whether a row may hold no more than one span, from 0 on.
    keep : int
        How many of each kind are located.
    """
    found = BadSpans(np.zeros(3, np.int64), np.zeros((3, keep), np.int64), np.zeros((3, keep), np.int64))
    offsets = np.asarray(column.offsets, np.int64)
    starts, ends, scores = _fields(column.values)
    _find_bad_spans(
        _frozen(offsets), _frozen(validity(column)), starts, ends, scores, _frozen(np.asarray(lengths, np.int64)),
        is_document, found.counts, found.rows, found.items,
    )  # fmt: skip
    return found


def _fields(spans: pa.StructArray) -> tuple[Counts, Counts, Floats]:
    """Return starts, ends and scores; what is missing in a table of another tool becomes a value that is wrong."""
    starts, ends = (_frozen(np.asarray(pc.fill_null(spans.field(i), -1), np.int64)) for i in (0, 1))
    return starts, ends, _frozen(np.asarray(pc.fill_null(spans.field(2), np.nan), np.float64))


def _frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only view: numba compiles a kernel once per mutability, and Arrow gives either."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@kernel
def _find_bad_spans(
    offsets: Counts,
    valid: Bools,
    starts: Counts,
    ends: Counts,
    scores: Floats,
    lengths: Counts,
    is_document: bool,
    counts: Counts,
    rows: Counts,
    items: Counts,
) -> None:
    keep = rows.shape[1]
    for row in range(lengths.size):
        if not valid[row]:
            continue
        first, stop, length = offsets[row], offsets[row + 1], lengths[row]
        if is_document and (stop - first > 1 or (stop > first and starts[first] != 0)):
            if counts[2] < keep:
                rows[2, counts[2]] = row
                items[2, counts[2]] = first
            counts[2] += 1
        for item in range(first, stop):
            if not 0 <= starts[item] <= ends[item] <= length:
                if counts[0] < keep:
                    rows[0, counts[0]] = row
                    items[0, counts[0]] = item
                counts[0] += 1
            if not -np.inf < scores[item] < np.inf:
                if counts[1] < keep:
                    rows[1, counts[1]] = row
                    items[1, counts[1]] = item
                counts[1] += 1


def check_column(
    key: str,
    kind: AttributeKind,
    column: pa.Array,
    lengths: Counts,
    place: tuple[str, int],
    problems: Problems,
) -> None:
    """Add what is wrong with the values of one key in consecutive rows.

    Parameters
    ----------
    key : str
        The key.
    kind : AttributeKind
        What readers take its values for; a ``document`` column is given as lists of spans where the file has them.
    column : pyarrow.Array
        (n,) values.
    lengths : numpy.ndarray of int64
        (n,) code points of the texts.
    place : tuple of str and int
        File, and the row in it of the first value.
    problems : Problems
        Gets them.
    """
    if pa.types.is_list(column.type):
        found = find_bad_spans(column, lengths, is_document=kind == "document", keep=problems.keep)
        for code in np.flatnonzero(found.counts).tolist():
            told = _spans_told(code, key, column, lengths, place, found)
            problems.add_all(_KINDS[code], told, int(found.counts[code]))
    elif pa.types.is_floating(column.type):
        _check_numbers(key, column, place, problems)


def _spans_told(
    code: int, key: str, column: pa.Array, lengths: Counts, place: tuple[str, int], found: BadSpans
) -> Iterator[Problem]:
    file, first_row = place
    told = min(int(found.counts[code]), found.rows.shape[1])
    for row, item in zip(found.rows[code, :told].tolist(), found.items[code, :told].tolist(), strict=True):
        start, end, score = cast(dict[str, float | None], column.values[item].as_py()).values()
        what = f"span [{start}, {end}, {score}] of {key}"
        expected = (
            f"0 <= start <= end <= {lengths[row]}, the code points of the text"
            if code == OUTSIDE
            else KINDS[_KINDS[code]]
        )
        if code == SEVERAL:
            spans = len(column[row])
            what = f"{spans} spans of {key}" if spans > 1 else what
        yield Problem(file, first_row + row, what, expected)


def _check_numbers(key: str, column: pa.Array, place: tuple[str, int], problems: Problems) -> None:
    """JSON holds finite numbers only; a table may hold others."""
    wrong = np.flatnonzero(~np.isfinite(np.asarray(pc.fill_null(column, 0.0), np.float64)))
    file, first_row = place
    told = (
        Problem(file, first_row + row, f"{column[row].as_py()} in {key}", KINDS["not_finite"])
        for row in wrong[: problems.keep].tolist()
    )
    problems.add_all("not_finite", told, len(wrong))
