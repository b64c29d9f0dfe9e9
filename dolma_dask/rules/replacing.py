"""Replace spans of texts, and move the spans that remain: what a mix does with e-mail addresses, short lines, duplicate paragraphs.

All rules of a mix are applied at once to the old text: spans of all rules with a score in ``[min_score, max_score)`` are sorted by their
start (first by rule and order in the list where starts are equal), and of overlapping ones the first wins. ``{}`` in a replacement is the
text of the span; a replacement that begins with ``$`` is a value of the document. Ends beyond the text are clipped. A span of no width
inserts, unless a replaced span ends where it stands.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.errors import SchemaError
from dolma_dask.formats.json.block import Lines
from dolma_dask.rules.replacement_kernels import moved_span, select_spans, write_moved, write_texts
from dolma_dask.rules.splicing import string_parts_of
from dolma_dask.text.columns import for_kernel, join_texts, large_strings, string_parts
from dolma_dask.text.kernels import Bytes, Counts

HOLE = "{}"


@dataclass(frozen=True)
class SpanRule:
    """Spans that one rule of a mix replaces in a batch of documents."""

    called: str  # for messages
    spans: pa.ListArray  # (n,) ``list<struct<start, end, score>>``, null for none
    min_score: float | None  # limits; the upper one is not included
    max_score: float | None
    texts: pa.LargeStringArray
    """(1,) for all documents, or (n,) one for each; null where a document has none."""
    expands: bool = True  # whether ``{}`` in a text stands for the text of the span


@dataclass(frozen=True)
class Replaced:
    """Texts after replacement, and what is needed to move other spans with them."""

    texts: pa.LargeStringArray  # (n,)
    changed: npt.NDArray[np.bool_]  # rows in which something was replaced
    cut: Counts  # see `dolma_dask.rules.replacement_kernels.select_spans`
    selected: npt.NDArray[np.int64]
    lengths: Counts

    @property
    def count(self) -> int:
        """Spans that were replaced."""
        return len(self.selected)


@dataclass(frozen=True)
class _Spans:
    """Spans of all rules, sorted by row and start."""

    cut: Counts
    starts: Counts
    ends: Counts
    templates: Counts


def replace_spans(texts: pa.LargeStringArray, rules: Sequence[SpanRule]) -> Replaced:
    """Replace the spans of all rules in all texts.

    Raises `SchemaError`: a span begins before the text or ends before its start, or a document lacks the value that is to replace it.

    Parameters
    ----------
    texts : pyarrow.LargeStringArray
        (n,) without nulls.
    rules : sequence of SpanRule
        In their order.
    """
    rows = len(texts)
    spans = _collect(rules, rows)
    fixed, holes, points, expands, cut, data = _templates(rules, rows)
    text_cut, text = string_parts(texts)
    total, sizes = len(spans.starts), np.empty(rows, np.int64)
    selected_cut, selected = np.zeros(rows + 1, np.int64), np.empty((total, 7), np.int64)
    lengths, grown = np.zeros(rows, np.int64), np.zeros(1, np.int64)
    select_spans(
        text_cut, text, spans.cut, spans.starts, spans.ends, spans.templates, fixed, holes, points, sizes,
        selected_cut, selected, lengths, grown,
    )  # fmt: skip
    changed = np.diff(selected_cut) > 0
    selected = selected[: selected_cut[-1]]
    if not len(selected):
        return Replaced(texts, changed, selected_cut, selected, lengths)
    out, offsets = np.empty(int(grown[0]), np.uint8), np.empty(rows + 1, np.int64)
    write_texts(text_cut, text, selected_cut, selected, cut, data, expands, out, offsets)
    return Replaced(
        large_strings(offsets, out, np.ones(rows, np.bool_)), changed, selected_cut, selected, lengths
    )


def _collect(rules: Sequence[SpanRule], rows: int) -> _Spans:
    parts = [_within_limits(rule) for rule in rules]
    row, start, end = (
        np.concatenate([part[k] for part in parts] or [np.empty(0, np.int64)]) for k in range(3)
    )
    first, template = 0, []
    for rule, part in zip(rules, parts, strict=True):
        template.append(first + (part[0] if len(rule.texts) != 1 else np.zeros(len(part[0]), np.int64)))
        first += len(rule.texts)
    order = np.lexsort((start, row))  # stable: by rule and order where starts are equal
    cut = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=rows), out=cut[1:])
    templates = np.concatenate([*template, np.empty(0, np.int64)])
    return _Spans(*(for_kernel(part) for part in (cut, start[order], end[order], templates[order])))


def _within_limits(rule: SpanRule) -> tuple[npt.NDArray[np.int64], ...]:
    """Return row, start and end of the spans of one rule whose scores are within its limits."""
    offsets = np.asarray(rule.spans.offsets).astype(np.int64)
    inside = rule.spans.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    counts = np.diff(offsets)
    if rule.spans.null_count:
        counts = np.where(rule.spans.is_valid().to_numpy(zero_copy_only=False), counts, 0)
    row = np.repeat(np.arange(len(counts)), counts)
    start, end, score = (
        inside.field(name).to_numpy(zero_copy_only=False) for name in ("start", "end", "score")
    )
    if len(row) != len(start):
        kept = np.repeat(rule.spans.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets))
        start, end, score = start[kept], end[kept], score[kept]
    is_within = np.ones(len(row), np.bool_)
    if rule.min_score is not None:
        is_within &= score >= rule.min_score
    if rule.max_score is not None:
        is_within &= score < rule.max_score
    row, start, end = row[is_within], start[is_within], end[is_within]
    _check(rule, row, start, end)
    return row, start, end


def _check(rule: SpanRule, row: Counts, start: Counts, end: Counts) -> None:
    bad = (start < 0) | (end < start)
    if bad.any():
        at = int(bad.argmax())
        raise SchemaError(
            f"{rule.called} has the span [{start[at]}, {end[at]}]; expected 0 <= start <= end, in code points. Make the attribute again.",
            row=int(row[at]),
        )
    if rule.texts.null_count:
        lacking = pc.is_null(rule.texts).to_numpy(zero_copy_only=False)[
            row if len(rule.texts) > 1 else 0 * row
        ]
        if lacking.any():
            raise SchemaError(
                f"{rule.called} is to be replaced by a value that the document does not have; expected a string.",
                row=int(row[int(lacking.argmax())]),
            )


def _templates(rules: Sequence[SpanRule], rows: int) -> tuple[Any, ...]:
    """Return bytes and code points besides ``{}``, number of ``{}``, whether it is expanded (t,), and the texts of all templates."""
    empty = pa.array([], pa.large_string())
    texts = pa.concat_arrays([empty, *(rule.texts for rule in rules)])
    texts = pc.fill_null(texts, "")
    expands = np.repeat([rule.expands for rule in rules], [len(rule.texts) for rule in rules]).astype(
        np.uint8
    )
    holes = np.asarray(pc.count_substring(texts, HOLE).to_numpy(zero_copy_only=False), np.int64) * expands
    cut, data = string_parts(texts)
    fixed = np.diff(cut)[: len(texts)] - len(HOLE) * holes if len(texts) else holes
    points = np.asarray(pc.utf8_length(texts).to_numpy(zero_copy_only=False), np.int64) - len(HOLE) * holes
    return (*map(for_kernel, (fixed, holes, points, expands)), cut, data)


def move_spans(attributes: pa.LargeStringArray, replaced: Replaced) -> pa.LargeStringArray:
    """Move the spans of all attributes to where their texts are after replacement.

    Left out are spans that begin or end inside a replaced one, and those whose text was all replaced; what is about the document
    stays so.

    Parameters
    ----------
    attributes : pyarrow.LargeStringArray
        (n,) JSON objects, null for none.
    replaced : Replaced
        Of the same documents.
    """
    if not replaced.count:
        return attributes
    rows = len(attributes)
    texts = attributes.fill_null("{}") if attributes.null_count else attributes
    cut, data = string_parts_of(join_texts(texts, "\n"))
    block = Lines(data[cut[0] : cut[-1]], cut - cut[0])
    # a span of 7 bytes has at most 46 after it was moved; what is not reached is never touched
    out, offsets, status = (
        np.empty(7 * block.block.size, np.uint8),
        np.empty(rows + 1, np.int64),
        np.zeros(rows, np.uint8),
    )
    write_moved(
        block.base, block.tail_base, block.tail_row, block.starts, block.block, replaced.cut, replaced.selected, replaced.lengths,
        out, offsets, status,
    )  # fmt: skip
    valid = attributes.is_valid().to_numpy(zero_copy_only=False)
    moved = large_strings(offsets, out[: offsets[-1]].copy(), np.ones(rows, np.bool_))
    if status.any():
        moved = _with_slow(moved, texts, replaced, status)
    return moved if valid.all() else pc.if_else(pa.array(valid), moved, pa.scalar(None, pa.large_string()))


def _with_slow(moved: pa.Array, texts: pa.Array, replaced: Replaced, status: Bytes) -> pa.LargeStringArray:
    rows = [
        _move_slowly(text.as_py(), replaced, row) if slow else done.as_py()
        for row, (done, text, slow) in enumerate(zip(moved, texts, status, strict=True))
    ]
    return pa.array(rows, pa.large_string())


def _move_slowly(text: str, replaced: Replaced, row: int) -> str:
    """Move the spans of one document's attributes, which hold other lists too."""
    first, stop = int(replaced.cut[row]), int(replaced.cut[row + 1])
    moved = {}
    for key, value in json.loads(text).items():
        if isinstance(value, list) and all(map(_is_span, value)):
            moves = [
                (
                    moved_span(
                        int(span[0]), int(span[1]), replaced.selected, first, stop, int(replaced.lengths[row])
                    ),
                    span,
                )
                for span in value
            ]
            value = [[start, end, *span[2:]] for (left, start, end), span in moves if left]
        moved[key] = value
    return json.dumps(moved, ensure_ascii=False, separators=(",", ":"))


def _is_span(value: object) -> bool:
    return isinstance(value, list) and len(value) > 2 and all(map(_is_offset, value[:2]))


def _is_offset(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
