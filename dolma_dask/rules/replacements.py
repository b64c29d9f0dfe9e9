"""Replace spans of texts, and move the spans that remain: what a mix does with e-mail addresses, short lines, duplicate paragraphs.

All rules of a mix are applied at once to the old text: spans of all rules with a score in ``[min_score, max_score)`` are sorted by their
start (first by rule and order in the list where starts are equal), and of overlapping ones the first wins. ``{}`` in a replacement is the
text of the span; a replacement that begins with ``$`` is a value of the document. Ends beyond the text are clipped. A span of no width
inserts, unless a replaced span ends where it stands.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict

from dolma_dask.display import near_or_all
from dolma_dask.errors import ExpressionError, SchemaError, UsageError
from dolma_dask.formats.json.lines import Lines
from dolma_dask.rules.filter_columns import ATTRIBUTES
from dolma_dask.rules.filters import Syntax, check_expression, check_syntax
from dolma_dask.rules.jsonpath import Items, Keys, Path, is_number, parse_path
from dolma_dask.rules.replacement_kernels import moved_span, select_spans, write_moved, write_texts
from dolma_dask.rules.splicing import kernel_output, remade
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import code_point_lengths, for_kernel, join_texts, large_strings, string_parts
from dolma_dask.text.kernels import Counts

SELECTS = "$"
"""Beginning of a replacement that is a value of the document."""

HOLE = "{}"
"""Text of the span, in a replacement."""


class Replacement(Struct, frozen=True, dict=True):
    """Replace the spans of an attribute."""

    span: str  # where they are, such as ``$.attributes.pii__pii__EMAIL_ADDRESS``
    min_score: float | None = None  # only spans with a score in ``[min_score, max_score)``
    max_score: float | None = None
    replacement: str = ""
    """Replacement text; ``{}`` stands for the span's text. One that begins with ``$`` is a path to a string of the document, such as
    ``$.id``, or an expression in jq behind the ``$``."""
    syntax: Syntax = "jsonpath"  # language of `span`

    def __post_init__(self) -> None:
        check_syntax(self.syntax)
        check_expression(self.span, self.syntax)
        if self.selects:
            self.selector()

    @property
    def selects(self) -> bool:
        """True if the replacement is a value of the document."""
        return self.replacement.startswith(SELECTS)

    @cached_property
    def key(self) -> str | None:
        """The attribute whose spans are meant, if the path says just this."""
        text = SELECTS + self.span.strip() if self.syntax == "jq" else self.span
        try:
            steps = parse_path(text).steps
        except ExpressionError:
            return None
        match steps:
            case (Keys((first,)), Keys((key,))) if first == ATTRIBUTES:
                return key
        return None

    def selector(self) -> tuple[str, Syntax]:
        """Return the expression behind a replacement that is a value of the document, and its language."""
        path = self.path()
        if path is not None:
            return self.replacement, "jsonpath"
        program = self.replacement.removeprefix(SELECTS)
        try:
            check_expression(program, "jq")
        except ExpressionError as error:
            raise ExpressionError(
                f"the replacement {self.replacement!r} begins with $, so that it is a value of the document, such as $.id; {error}",
                **error.details,
            ) from None
        return program, "jq"

    def path(self) -> Path | None:
        """Return the value of the document as a path of keys and indexes, None if it is something else."""
        try:
            path = parse_path(self.replacement)
        except ExpressionError:
            return None
        plain = path.steps and all(isinstance(step, Keys | Items) for step in path.steps)
        return path if plain else None

    def to_json(self) -> dict[str, Any]:
        """Return the keys that were given, as JSON-able values."""
        given = asdict(self)
        return {name: value for name, value in given.items() if value is not None}


def make_replacement(given: Mapping[str, Any] | Replacement) -> Replacement:
    """Return a rule from its keys, as they stand in a configuration file."""
    if isinstance(given, Replacement):
        return given
    if not isinstance(given, Mapping):
        raise UsageError(
            f"the replacement {given!r} is of type {type(given).__name__}; expected keys such as span, min_score and replacement."
        )
    names = Replacement.__struct_fields__
    for name in given:
        if name not in names:
            raise UsageError(f"a replacement has no key {name!r}; {near_or_all(name, names)}")
    if not isinstance(given.get("span"), str):
        raise UsageError(
            f"the replacement {dict(given)!r} does not say which spans; expected span, such as $.attributes.<key>."
        )
    return Replacement(
        given["span"],
        _score(given, "min_score"),
        _score(given, "max_score"),
        _text(given, "replacement", ""),
        check_syntax(_text(given, "syntax", "jsonpath")),
    )


def _score(given: Mapping[str, Any], name: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name}={value!r} of a replacement; expected a number.")
    return float(value)


def _text(given: Mapping[str, Any], name: str, default: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r} of a replacement; expected a string.")
    return value


class SpanColumn(Struct, frozen=True):
    """Spans that one rule replaces in a batch of documents."""

    rule: Replacement
    spans: pa.ListArray  # (n,) ``list<struct<start, end, score>>``, null for none
    texts: pa.LargeStringArray
    """(1,) for all documents, or (n,) one for each; null where a document has none."""


class Replaced(Struct, frozen=True):
    """Texts after replacement, and what is needed to move other spans with them."""

    texts: pa.LargeStringArray  # (n,)
    changed: npt.NDArray[np.bool_]  # rows in which something was replaced
    cut: Counts  # see `dolma_dask.rules.replacement_kernels.select_spans`
    selected: npt.NDArray[np.int64]
    lengths: Counts
    keys: frozenset[str]  # attributes whose spans were meant

    @property
    def whole(self) -> npt.NDArray[np.bool_]:
        """Rows (n,) whose text was replaced as one span; an empty one may stand before it."""
        rows = np.repeat(np.arange(len(self.changed)), np.diff(self.cut))
        is_all = (self.selected[:, 0] == 0) & (self.selected[:, 1] == self.lengths[rows])
        return np.bincount(rows[is_all], minlength=len(self.changed)) > 0

    @property
    def count(self) -> int:
        """Spans that were replaced."""
        return len(self.selected)


def replace_spans(texts: pa.LargeStringArray, columns: Sequence[SpanColumn]) -> Replaced:
    """Replace the spans of all rules, in their order, in all texts (n,) without nulls.

    Raises `SchemaError`: a span begins before the text or ends before its start, or a document lacks the value that is to replace it.
    """
    rows = len(texts)
    span_cut, starts, ends, templates = _sorted_spans(columns, rows)
    fixed, holes, points, expands, template_cut, template = _templates(columns)
    text_cut, text = string_parts(texts)
    cut, lengths = np.zeros(rows + 1, np.int64), np.zeros(rows, np.int64)
    selected = np.empty((len(starts), 7), np.int64)
    grown = select_spans(
        text_cut, text, span_cut, starts, ends, templates, fixed, holes, points, cut, selected, lengths
    )
    selected, changed = selected[: cut[-1]], np.diff(cut) > 0
    if len(selected):
        out, offsets = np.empty(grown, np.uint8), np.empty(rows + 1, np.int64)
        write_texts(text_cut, text, cut, selected, template_cut, template, expands, out, offsets)
        texts = large_strings(offsets, out)
    keys = frozenset(key for column in columns if (key := column.rule.key))
    return Replaced(texts, changed, cut, selected, lengths, keys)


def _sorted_spans(columns: Sequence[SpanColumn], rows: int) -> tuple[Counts, ...]:
    """Return the spans of all rules, sorted by row and start: those of each row (n + 1,), and start, end and template of each."""
    parts = []
    first = 0
    for column in columns:
        row, start, end = _within_limits(column)
        parts.append((row, start, end, first + (row if len(column.texts) != 1 else 0 * row)))
        first += len(column.texts)
    row, start, end, template = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((start, row))  # stable: by rule and order where starts are equal
    cut = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=rows))])
    return tuple(for_kernel(part) for part in (cut, start[order], end[order], template[order]))


def _within_limits(column: SpanColumn) -> tuple[Counts, Counts, Counts]:
    """Return row, start and end of the spans of one rule whose scores are within its limits."""
    rule, counts = column.rule, pc.fill_null(pc.list_value_length(column.spans), 0)
    row = np.repeat(np.arange(len(counts)), counts.to_numpy(zero_copy_only=False))
    inside = column.spans.flatten()
    start, end, score = (
        inside.field(name).to_numpy(zero_copy_only=False) for name in ("start", "end", "score")
    )
    is_within = np.ones(len(row), np.bool_)
    if rule.min_score is not None:
        is_within &= score >= rule.min_score
    if rule.max_score is not None:
        is_within &= score < rule.max_score
    row, start, end = row[is_within], start[is_within], end[is_within]
    _check(column, row, start, end)
    return row, start, end


def _check(column: SpanColumn, row: Counts, start: Counts, end: Counts) -> None:
    bad = (start < 0) | (end < start)
    if bad.any():
        at = int(bad.argmax())
        raise SchemaError(
            f"{column.rule.span} has the span [{start[at]}, {end[at]}]; expected 0 <= start <= end, in code points. Make the attribute again.",
            row=int(row[at]),
        )
    lacking = pc.is_null(column.texts).to_numpy(zero_copy_only=False)
    lacking = lacking[row if len(lacking) > 1 else 0 * row]
    if lacking.any():
        raise SchemaError(
            f"{column.rule.span} is to be replaced by a value that the document does not have; expected a string.",
            row=int(row[int(lacking.argmax())]),
        )


def _templates(columns: Sequence[SpanColumn]) -> tuple[Any, ...]:
    """Return bytes and code points besides ``{}``, number of ``{}``, whether it is expanded (t,), and the texts of all templates."""
    texts = pc.fill_null(pa.concat_arrays([column.texts for column in columns]), "")
    expands = np.concatenate([np.full(len(each.texts), not each.rule.selects, np.uint8) for each in columns])
    holes = np.asarray(pc.count_substring(texts, HOLE).to_numpy(zero_copy_only=False), np.int64) * expands
    cut, data = string_parts(texts)
    fixed = np.diff(cut) - len(HOLE) * holes
    points = code_point_lengths(texts) - len(HOLE) * holes
    return (*map(for_kernel, (fixed, holes, points, expands)), cut, data)


def move_spans(attributes: pa.LargeStringArray, replaced: Replaced) -> pa.LargeStringArray:
    """Move the spans in JSON objects of attributes (n,), null for none, to where their texts are after replacement.

    Left out are spans that begin or end inside a replaced one, and those whose text was all replaced; what is about the document
    stays so. A span of the whole text is about the document; but where a rule replaced a text as a whole, nothing of its attribute is left.
    """
    if not replaced.count:
        return attributes
    texts = attributes.fill_null("{}") if attributes.null_count else attributes
    block = Lines.of(join_texts(texts, "\n"))
    # a span of 7 bytes has at most 46 after it was moved; what is not reached is never touched
    out, offsets, status = kernel_output(7 * block.block.size, len(texts))
    write_moved(*block.parts, replaced.cut, replaced.selected, replaced.lengths, out, offsets, status)
    moved = large_strings(offsets, out[: offsets[-1]].copy())
    status[replaced.whole & np.bool_(replaced.keys)] = 1  # the kernel does not know of keys
    moved = remade(moved, status, lambda row: _move_slowly(texts[row].as_py(), replaced, row))
    return (
        pc.if_else(attributes.is_valid(), moved, pa.scalar(None, pa.large_string()))
        if attributes.null_count
        else moved
    )


def _move_slowly(text: str, replaced: Replaced, row: int) -> str:
    """Move the spans of one document's attributes, which hold other lists or objects too; lists of spans are moved at any depth."""
    around = (replaced.selected, *map(int, (*replaced.cut[row : row + 2], replaced.lengths[row])))
    of_rules = replaced.keys if replaced.whole[row] else frozenset()

    def moved(value: Any, is_replaced: bool = False) -> Any:
        if isinstance(value, dict):
            return {key: moved(inner) for key, inner in value.items()}
        if not isinstance(value, list):
            return value
        if not all(map(is_span, value)):
            return [moved(inner) for inner in value]
        if is_replaced:
            return []
        moves = [(moved_span(int(span[0]), int(span[1]), *around), span) for span in value]
        return [[start, end, *span[2:]] for (left, start, end), span in moves if left]

    def without_replaced(found: dict[str, Any]) -> dict[str, Any]:
        return {key: moved(value, key in of_rules) for key, value in found.items()}

    try:
        return json.dumps(
            without_replaced(json.loads(text)), ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except (RecursionError, ValueError):
        what = "a number that no double holds, or arrays and objects that are nested too deeply"
        raise SchemaError(
            f"spans in attributes with {what} cannot be moved; leave the attribute out", row=row
        ) from None


def is_span(value: object) -> bool:
    """Tell whether a value is ``[start, end, ...]``."""
    if not isinstance(value, list) or len(value) < 3:
        return False
    return all(is_number(offset) and float(offset).is_integer() for offset in value[:2])
