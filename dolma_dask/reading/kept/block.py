"""A block of documents with every column that filters and replacements may need; what is not needed is not made."""

from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import SchemaError
from dolma_dask.formats.attribute_columns import column_texts
from dolma_dask.formats.documents import METADATA, RAW, STRINGS
from dolma_dask.formats.exact_numbers import inexact, integers, nearest
from dolma_dask.formats.json.attributes import AttributeKind, scan_objects
from dolma_dask.formats.json.lines import SPAN, Lines
from dolma_dask.formats.json.write import string_texts
from dolma_dask.io.attributes import OBJECT, member_texts
from dolma_dask.io.records import Block
from dolma_dask.reading.kept.recipe import Recipe, SpanWork, prefix_of
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.rules.filter_columns import ATTRIBUTE_PREFIX, ATTRIBUTES, PARTS, SpanItem
from dolma_dask.rules.filters import Filter, select
from dolma_dask.rules.jsonpath import is_number
from dolma_dask.rules.replacements import (
    Replaced,
    Replacement,
    SpanColumn,
    is_span,
    move_spans,
    replace_spans,
)
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.splicing import Edit, join_objects, splice
from dolma_dask.rules.values import Name, Value, every_row
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import join_texts, validity
from dolma_dask.text.kernels import Bools

PROVENANCE = "provenance"


class MixBlock(Struct, dict=True):
    """A block of documents with every column that filters and replacements may need; what is not needed is not made."""

    shard: AlignedShard
    recipe: Recipe
    batch: pa.RecordBatch  # (n,) columns of documents
    columns: Mapping[str, pa.Array]  # (n,) fields of the metadata, and attributes by `prefix_of` their set
    numbers: npt.NDArray[np.int64]  # (n,) rows in the shard
    _made: dict[str, pa.Array] = {}

    @classmethod
    def of(cls, shard: AlignedShard, recipe: Recipe, block: Block) -> "MixBlock":
        """Return all rows of a block."""
        own = [name for name in block.batch.schema.names if name in (*STRINGS, METADATA, RAW)]
        others = {name: block.batch.column(name) for name in block.batch.schema.names if name not in own}
        return cls(
            shard, recipe, block.batch.select(own), others, block.first_row + np.arange(block.num_rows)
        )

    def take(self, taken: pa.BooleanArray | pa.Int64Array) -> "MixBlock":
        """Return some of the rows."""
        is_mask = pa.types.is_boolean(taken.type)
        if is_mask and taken.true_count == len(taken):
            return self
        needed = self.recipe.spans or self.recipe.options.merge_attributes or self.recipe.beside
        return self._part(taken, self.columns if needed else {})

    def without(self, gone: Bools) -> "MixBlock":
        """Return the rows (n,) that are not `gone`, before any filter has looked at them."""
        return self._part(pa.array(~gone), self.columns) if gone.any() else self

    def _part(self, taken: pa.BooleanArray | pa.Int64Array, columns: Mapping[str, pa.Array]) -> "MixBlock":
        is_mask = pa.types.is_boolean(taken.type)

        def part(array: pa.Array) -> pa.Array:
            return array.filter(taken) if is_mask else array.take(taken)

        own = {name: part(array) for name, array in columns.items()}
        numbers = part(pa.array(self.numbers)).to_numpy()
        rows = MixBlock(self.shard, self.recipe, part(self.batch), own, numbers)
        if "own" in vars(self):
            vars(rows)["own"] = part(self.own)
        return rows

    @cached_property
    def lengths(self) -> pa.Array:
        """Code points of the texts."""
        return pc.utf8_length(self.batch.column("text"))

    @cached_property
    def own(self) -> pa.LargeStringArray:
        """The documents' own attributes as JSON text, null for none."""
        raw = self.batch.column(RAW)
        own = member_texts(Lines.of(raw.fill_null(b"\n") if raw.null_count else raw), ATTRIBUTES)
        strange = pc.fill_null(pc.invert(pc.starts_with(own, "{")), False)
        if pc.any(strange).as_py():
            raise self.error(
                pc.index(strange, True).as_py(),
                "attributes that are no object; expected an object, or none",
            )
        return own

    def error(self, at: int, what: str) -> SchemaError:
        """Return an error about a row of this block."""
        row = int(self.numbers[at])
        return SchemaError(
            f"{self.shard.shard.document}, row {row}: {what}.",
            shard=self.shard.shard.path,
            row=row,
        )

    def mask(self, item: Filter) -> pa.BooleanArray:
        """Return for which rows a filter, or a part of the `where` rule, holds."""
        if item.rule is None:
            return pa.array([row is not None and item.matches(row) for row in self.parsed], pa.bool_())
        columns = self._columns_of(item.rule)
        self._check_required(item.rule, columns)
        return item.rule.mask(columns or {"": pa.nulls(self.batch.num_rows)})

    def missing(self, rule: Rule) -> pa.BooleanArray:
        """Return which rows lack a value that a rule compares."""
        columns = self._columns_of(rule)
        lacking = [pc.is_null(value.evaluate(columns).data) for value in rule.operands if value.names]
        return reduce(pc.or_, lacking) if lacking else every_row(False, self.batch.num_rows)

    def _check_required(self, rule: Rule, columns: Mapping[str, pa.Array]) -> None:
        """Refuse a row that can be read and lacks a value which it has to have."""
        for value in rule.required:
            lacking = pc.and_(pc.is_null(value.evaluate(columns).data), pc.is_valid(self.batch.column("id")))
            at = pc.index(lacking, True).as_py()
            if at >= 0:
                raise self.error(
                    at,
                    f"document {self.batch.column('id')[at].as_py()!r} has no {self._shown(value)}; expected a value, since the thresholds say nulls: "
                    "fail. Let them say drop or keep, or make the signal for all documents",
                )

    def _shown(self, value: Value) -> str:
        """Return how people call a value: without what is put before the keys of attribute sets."""
        return str(value).strip("`").rpartition(prefix_of("")[-1])[2]

    def _columns_of(self, rule: Rule) -> dict[str, pa.Array]:
        lists = rule.lists & self.columns.keys()
        return {name: self.columns[name] if name in lists else self.column(name) for name in rule.names}

    def beside(self, name: str) -> pa.Array:
        """Return a column of documents, or one that is read beside what filters need, by its full name; numbers as doubles."""
        return nearest(self.column(self.recipe.beside.get(name, name)))

    def column(self, name: str) -> pa.Array:
        """Return a column by the name that filters know it under."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> pa.Array:
        if name.startswith(ATTRIBUTE_PREFIX):
            return self._attribute(name.removeprefix(ATTRIBUTE_PREFIX))
        if name not in self.columns:
            return self.batch.column(name)
        column = self.columns[name]  # scores of documents may have been read as spans
        is_list = pa.types.is_list(column.type)
        return SpanItem(Name(name), 0, 2).evaluate(self.columns).data if is_list else column

    def _attribute(self, key: str) -> pa.Array:
        """Return the values of an attribute; later sets win over earlier ones, and all over the documents themselves."""
        columns = [self.columns[prefix_of(name) + key] for name in self.recipe.columns[key]]
        if key in self.recipe.own:
            columns.insert(0, self._own_columns[key])
        if not columns:
            return pa.nulls(self.batch.num_rows, pa.list_(SPAN))
        if key in self.recipe.lists:
            columns = [as_spans(column, self.lengths) for column in columns]
        return columns[0] if len(columns) == 1 else pc.coalesce(*reversed(columns))

    @cached_property
    def _own_columns(self) -> Mapping[str, pa.Array]:
        columns, errors = scan_objects(self.own.fill_null("{}"), self.recipe.own, exact=True)
        for row, error in errors:
            raise self.error(row, f"{error.expected}, as in earlier documents")
        return columns

    def objects(self) -> pa.LargeStringArray:
        """Return all attributes of each row as one JSON object: the documents' own, and over them those of the sets."""
        own = self.own
        objects = [self._object(name) for name in self.recipe.objects]
        if not objects:
            return own
        return join_objects(objects if own.null_count == len(own) else [own, *objects])

    def _object(self, name: str) -> pa.LargeStringArray:
        prefix = prefix_of(name)
        if prefix + OBJECT in self.columns:
            return self.columns[prefix + OBJECT]
        (source,) = (item for item in self.shard.sources if item.name == name)
        return object_texts(
            {key: self.columns[prefix + key] for key in source.kinds}, source.kinds, self.lengths
        )

    @cached_property
    def parsed(self) -> list[dict[str, Any] | None]:
        """Each document as Python's JSON values with its attributes merged in; None for one that cannot be read."""
        readable = self.batch.column("id").is_valid()
        rows = enumerate(zip(self.batch.column(RAW), self.objects(), readable, strict=True))
        return [self._document(at, raw, text) if valid.as_py() else None for at, (raw, text, valid) in rows]

    def _document(self, at: int, raw: pa.Scalar, attributes: pa.Scalar) -> dict[str, Any]:
        try:
            return _document(raw, attributes)
        except (msgspec.DecodeError, RecursionError):
            what = "a number that no double holds, or arrays and objects that are nested too deeply"
            raise self.error(at, f"{what}; expected what filters over whole documents can look at") from None

    def replaced(self, spans: Sequence[SpanWork]) -> Replaced:
        """Replace spans in all texts."""
        try:
            return replace_spans(self.batch.column("text"), [self._span_column(span) for span in spans])
        except SchemaError as error:
            raise self.error(int(str(error.details.get("row", 0))), str(error).rstrip(".")) from None

    def _span_column(self, span: SpanWork) -> SpanColumn:
        rule = span.rule
        if rule.key is not None:
            spans = self.column(ATTRIBUTE_PREFIX + rule.key)
        else:
            rows = [self._spans_of(rule, at, row) for at, row in enumerate(self.parsed)]
            spans = pa.array(rows, pa.list_(SPAN))
        if span.column is not None:
            return SpanColumn(rule, spans, self.column(span.column))
        if rule.selects:
            return SpanColumn(rule, spans, self._selected_texts(rule, spans))
        return SpanColumn(rule, spans, pa.array([rule.replacement], pa.large_string()))

    def _spans_of(self, rule: Replacement, at: int, row: dict[str, Any] | None) -> list[dict[str, float]]:
        all_spans: list[dict[str, float]] = []
        for value in select(rule.span, rule.syntax, row) if row is not None else ():
            spans = [value] if _is_scored_span(value) else value
            if spans is None:
                continue
            if not isinstance(spans, list) or not all(map(_is_scored_span, spans)):
                raise self.error(at, f"{rule.span} finds {value!r}; expected spans [start, end, score]")
            all_spans += [dict(zip(PARTS, item, strict=False)) for item in spans]
        return all_spans

    def _selected_texts(self, rule: Replacement, spans: pa.ListArray) -> pa.LargeStringArray:
        """Return what replaces the spans, from the documents that have any."""
        text, syntax = rule.selector()
        counts = pc.fill_null(pc.list_value_length(spans), 0).to_pylist()
        texts = [
            _one_string(select(text, syntax, row)) if count and row is not None else None
            for count, row in zip(counts, self.parsed, strict=True)
        ]
        return pa.array(texts, pa.large_string())

    def edits(self, replaced: Replaced | None) -> list[Edit]:
        """Return what changes in the lines of these rows."""
        options = self.recipe.options
        edits = {name: Edit(name, None) for name in options.discard_fields}
        replaced = replaced if replaced is not None and replaced.count else None
        if replaced is not None and "text" not in edits:
            changed = pc.if_else(pa.array(replaced.changed), replaced.texts, _NO_TEXT)
            edits["text"] = Edit("text", string_texts(changed))
        merges = options.merge_attributes and bool(self.recipe.objects)
        moved = replaced if options.moves_spans else None
        if ATTRIBUTES not in edits and (merges or moved is not None):
            attributes = self.objects() if merges else self.own
            edits[ATTRIBUTES] = Edit(
                ATTRIBUTES, attributes if moved is None else self._moved(attributes, moved)
            )
        if options.provenance:
            metadata = pa.nulls(len(self.numbers), pa.large_string())
            metadata = metadata if METADATA in edits else self.batch.column(METADATA)
            edits[METADATA] = Edit(METADATA, with_places(metadata, self.shard.shard.path, self.numbers))
        return list(edits.values())

    def _moved(self, attributes: pa.LargeStringArray, replaced: Replaced) -> pa.LargeStringArray:
        try:
            return move_spans(attributes, replaced)
        except SchemaError as error:
            raise self.error(int(str(error.details["row"])), str(error).rstrip(".")) from None


def with_places(
    metadata: pa.LargeStringArray, path: str, numbers: npt.NDArray[np.int64]
) -> pa.LargeStringArray:
    """Return metadata with the file and line of each row in it; in place of what is no object, an object with nothing else."""
    name = path.rsplit("/", 1)[-1]
    lines_of_rows = join_texts(f"{name}:", pa.array(numbers + 1).cast(pa.large_string()))
    return with_member(metadata, PROVENANCE, string_texts(lines_of_rows))


def with_member(metadata: pa.LargeStringArray, name: str, values: pa.LargeStringArray) -> pa.LargeStringArray:
    """Return metadata with one more member, in JSON; in place of what is no object, an object with nothing else."""
    is_object = pc.fill_null(pc.starts_with(metadata, "{"), False)
    lines = join_texts(pc.if_else(is_object, metadata, "{}"), "\n")
    spliced = splice(lines, [Edit(name, values)])
    return pc.utf8_rtrim(spliced.cast(pa.large_string()), characters="\n")


_NO_TEXT = pa.scalar(None, pa.large_string())


def _document(raw: pa.Scalar, attributes: pa.Scalar) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(raw.as_py())
    if attributes.is_valid:
        inside = msgspec.json.decode(attributes.as_py())
        document[ATTRIBUTES] = {key: value for key, value in inside.items() if value is not None}
    return document


def _is_scored_span(value: Any) -> bool:
    return is_span(value) and is_number(value[2])


def _one_string(values: Sequence[object]) -> str | None:
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


def as_spans(column: pa.Array, lengths: pa.Array) -> pa.ListArray:
    """Return a column of spans as it is; scores of documents as spans ``[0, length, score]``."""
    column = nearest(column)
    if not pa.types.is_floating(column.type):
        return column
    valid = validity(column)
    kept = pa.array(valid)
    ends = lengths.filter(kept).cast(pa.int64())
    starts = pa.array(np.zeros(len(ends), np.int64))
    spans = pa.StructArray.from_arrays([starts, ends, column.filter(kept)], fields=list(SPAN))
    offsets = np.concatenate([[0], np.cumsum(valid)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, spans, mask=pc.invert(kept))


def object_texts(
    columns: Mapping[str, pa.Array], kinds: Mapping[str, AttributeKind], lengths: pa.Array
) -> pa.LargeStringArray:
    """Return attributes that were read as columns (n,) as one JSON object per row, for documents of `lengths` (n,) code points; missing values are left
    out.
    """
    texts = {key: _texts(key, kinds[key], column, lengths).to_pylist() for key, column in columns.items()}
    objects = [
        _object({key: column[row] for key, column in texts.items()}, kinds) for row in range(len(lengths))
    ]
    return pa.array(objects, pa.large_string())


def _texts(key: str, kind: AttributeKind, column: pa.Array, lengths: pa.Array) -> pa.LargeStringArray:
    if kind in ("document", "spans"):
        return column_texts(key, "spans", as_spans(column, lengths))
    texts = column_texts(key, "scalar", nearest(column))
    rows = np.flatnonzero(inexact(column))
    if not len(rows):
        return texts
    spelled = texts.to_pylist()
    for row, number in zip(rows.tolist(), integers(column, rows), strict=True):
        spelled[row] = str(number)
    return pa.array(spelled, pa.large_string())


def _object(texts: Mapping[str, str | None], kinds: Mapping[str, AttributeKind]) -> str:
    inside: dict[str, Any] = {}
    for key, text in texts.items():
        if text is None:
            continue
        outer, _, inner = key.partition(".")
        if kinds[key] == "dict":
            inside.setdefault(outer, {})[inner] = msgspec.Raw(text.encode())
        else:
            inside[key] = msgspec.Raw(text.encode())
    return msgspec.json.encode(inside).decode()
