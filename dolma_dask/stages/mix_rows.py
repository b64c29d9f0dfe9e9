"""The rows of one shard on their way through a mix: filtered, sampled, their spans replaced, their lines spliced.

What is not asked costs nothing: kept lines stay views of the block that was read. Whatever the filters, documents and attributes go through
memory once, a block of 2 MB at a time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.alignment import AlignedBlock
from dolma_dask.errors import SchemaError
from dolma_dask.formats import layout
from dolma_dask.formats.documents import METADATA, OPTIONAL, RAW, text_bytes
from dolma_dask.formats.json_attributes import scan_attributes
from dolma_dask.formats.json_block import Lines
from dolma_dask.formats.json_write import join_texts, string_texts
from dolma_dask.formats.layout import format_of
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.mixing.filters import Filter, select
from dolma_dask.mixing.members import join_objects
from dolma_dask.mixing.replacing import Replaced, SpanRule, move_spans, replace_spans
from dolma_dask.mixing.row_columns import ATTRIBUTE_PREFIX, ATTRIBUTES
from dolma_dask.mixing.rules import Rule
from dolma_dask.mixing.span_values import SpanItem
from dolma_dask.mixing.splicing import Edit, splice, string_parts_of
from dolma_dask.mixing.values import Name
from dolma_dask.quality.sampling import sampled
from dolma_dask.stages.mix_attributes import OBJECT, ObjectShard, as_spans, member_texts, object_texts
from dolma_dask.stages.mix_recipe import MixWork, SpanWork, prefix_of
from dolma_dask.stages.selection import DOCUMENT_NAMES, conjuncts

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space, without which a text must not be too short."""

PROVENANCE = "provenance"


@dataclass(frozen=True)
class Kept:
    """Documents that are kept, as they are written.

    Attributes
    ----------
    lines : pyarrow.LargeBinaryArray
        (n,) with their final newlines.
    source, identity, text : pyarrow.LargeStringArray
        (n,) of each.
    numbers : int64[n]
        Their rows in the shard.
    """

    lines: pa.LargeBinaryArray
    source: pa.LargeStringArray
    identity: pa.LargeStringArray
    text: pa.LargeStringArray
    numbers: npt.NDArray[np.int64]


@dataclass
class MixedShard:
    """The kept documents of one shard as an iterable of `Kept`, and what was counted on the way.

    Attributes
    ----------
    work : MixWork
        What is read and done.
    policy : RecordPolicy
        For the reader.
    quarantine : Quarantine
        Takes the bad records.
    counts : dict
        ``documents_in, documents_out, text_bytes_in, text_bytes_out, bad_records``; documents for each part of the rule (``where ...``) and for
        each filter (``include ...``, ``exclude ...``); ``spans_replaced``, ``documents_changed``, ``documents_too_short``, ``documents_not_sampled``
        and ``documents_again`` where they can be.
    """

    work: MixWork
    policy: RecordPolicy
    quarantine: Quarantine
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        work, recipe = self.work, self.work.recipe
        named = recipe.where.names if recipe.where is not None else frozenset()
        every = named | {name for item in recipe.filters if item.rule is not None for name in item.rule.names}
        every |= {span.column for span in recipe.spans if span.column is not None}
        optional = [name for name in OPTIONAL if name in every]
        metadata = [METADATA] if recipe.wishes.provenance else []
        self.reader = ObjectShard(
            work.root,
            work.shard,
            (RAW, *optional, *metadata),
            work.sources,
            work.source,
            self.policy.max_record_bytes,
            fields=work.fields,
            objects=frozenset(
                item.name
                for item in work.sources
                if item.name in recipe.objects and format_of(item.info.path) != "parquet"
            ),
        )
        self._parts = conjuncts(recipe.where)
        self._include = _named("include", recipe.include)
        self._exclude = _named("exclude", recipe.exclude)
        self._start_counts()

    def _start_counts(self) -> None:
        wishes = self.work.recipe.wishes
        names = ["documents_in", "documents_out", "text_bytes_in", "text_bytes_out"]
        names += [f"where {part}" for part in self._parts]
        names += [name for name, _ in (*self._include, *self._exclude)]
        names += ["spans_replaced", "documents_changed"] if wishes.replacements else []
        names += ["documents_too_short"] if wishes.min_text_length else []
        names += ["documents_not_sampled", "documents_again"] if wishes.sample_rate is not None else []
        self.counts.update(dict.fromkeys(names, 0))

    def __iter__(self) -> Iterator[Kept]:
        for aligned in self.reader:
            self.quarantine.admit(aligned.block)
            rows = _Rows(self.work, aligned)
            self.counts["documents_in"] += aligned.block.num_rows
            self.counts["text_bytes_in"] += text_bytes(aligned.block.batch.column("text"))
            kept = self._written(rows, self._sampled(rows, self._chosen(rows)))
            self.counts["documents_out"] += len(kept.identity)
            self.counts["text_bytes_out"] += text_bytes(kept.text)
            yield kept
        self.counts["bad_records"] = self.quarantine.count

    def _chosen(self, rows: "_Rows") -> pa.BooleanArray:
        """Return which rows the rule and the filters keep."""
        readable = pc.is_valid(rows.batch.column("id"))
        kept = readable
        for part in self._parts:
            kept = pc.and_(kept, self._count(f"where {part}", part.mask(rows.for_where()), readable))
        if self._include:
            found = [self._count(name, rows.mask(item), readable) for name, item in self._include]
            kept = pc.and_(kept, _any(found))
        if self._exclude:
            found = [self._count(name, rows.mask(item), readable) for name, item in self._exclude]
            kept = pc.and_not(kept, _any(found))
        return kept

    def _count(self, name: str, mask: pa.BooleanArray, readable: pa.BooleanArray) -> pa.BooleanArray:
        holds = pc.and_(mask, readable)
        self.counts[name] += holds.true_count
        return holds

    def _sampled(self, rows: "_Rows", kept: pa.BooleanArray) -> pa.BooleanArray | pa.Int64Array:
        """Return which rows are taken: a mask, or row numbers where some are taken several times."""
        rate, seed = self.work.recipe.wishes.sample_rate, self.work.recipe.wishes.seed
        if rate is None:
            return kept
        whole, part = divmod(rate, 1.0)
        more = (
            sampled(rows.batch.column("source"), rows.batch.column("id"), part, seed)
            if part
            else pa.repeat(pa.scalar(False), len(kept))
        )
        times = (int(whole) + more.to_numpy(zero_copy_only=False)) * kept.to_numpy(zero_copy_only=False)
        self.counts["documents_not_sampled"] += kept.true_count - int((times > 0).sum())
        self.counts["documents_again"] += int(np.maximum(times - 1, 0).sum())
        return pa.array(np.repeat(np.arange(len(kept)), times))

    def _written(self, rows: "_Rows", taken: pa.BooleanArray | pa.Int64Array) -> Kept:
        """Replace spans in the chosen rows, leave out those that became too short, and splice the lines of the others."""
        recipe, wishes = self.work.recipe, self.work.recipe.wishes
        chosen = rows.take(taken)
        replaced = chosen.replaced(recipe.spans) if recipe.spans else None
        texts = chosen.batch.column("text") if replaced is None else replaced.texts
        long = _is_long(texts, wishes.min_text_length)
        if long is not None and not long.all():
            self.counts["documents_too_short"] += int((~long).sum())
            mask = pa.array(long)
            chosen, texts = chosen.take(mask), texts.filter(mask)
            replaced = None if replaced is None else chosen.replaced(recipe.spans)
        if replaced is not None:
            self.counts["spans_replaced"] += replaced.count
            self.counts["documents_changed"] += int(replaced.changed.sum())
        batch = chosen.batch
        lines = splice(batch.column(RAW), chosen.edits(replaced))
        return Kept(lines, batch.column("source"), batch.column("id"), texts, chosen.numbers)


def _named(what: str, filters: Sequence[Filter]) -> list[tuple[str, Filter]]:
    """Return filters with the names of their counts; one that is written twice counts once."""
    return list({f"{what} {item.text}": item for item in filters}.items())


def _any(masks: Sequence[pa.BooleanArray]) -> pa.BooleanArray:
    found = masks[0]
    for mask in masks[1:]:
        found = pc.or_(found, mask)
    return found


def _is_long(texts: pa.LargeStringArray, least: int) -> npt.NDArray[np.bool_] | None:
    if not least:
        return None
    sizes = pc.binary_length(pc.utf8_trim(texts, characters=WHITE_SPACE))
    return np.asarray(sizes.to_numpy(zero_copy_only=False)) >= least


class _Rows:
    """A block of documents with all that filters and replacements may ask of it; what is not asked is not made."""

    def __init__(self, work: MixWork, aligned: AlignedBlock) -> None:
        self.work = work
        self.recipe = work.recipe
        self.batch = aligned.block.batch
        self.first_row = aligned.block.first_row
        self.numbers: npt.NDArray[np.int64] = np.arange(self.batch.num_rows) + self.first_row
        self.columns: Mapping[str, pa.Array] = aligned.attributes
        self._own: pa.LargeStringArray | None = None
        self._made: dict[str, pa.Array] = {}
        self._parsed: list[dict[str, Any] | None] | None = None

    def take(self, taken: pa.BooleanArray | pa.Int64Array) -> "_Rows":
        """Return some of the rows."""
        if pa.types.is_boolean(taken.type) and taken.true_count == len(taken):
            return self

        def part(array: pa.Array) -> pa.Array:
            return array.filter(taken) if pa.types.is_boolean(taken.type) else array.take(taken)

        rows: _Rows = object.__new__(_Rows)
        rows.work, rows.recipe, rows.first_row = self.work, self.recipe, self.first_row
        rows.batch = part(self.batch)
        rows.numbers = part(pa.array(self.numbers)).to_numpy()
        needed = self.recipe.spans or self.recipe.wishes.merge_attributes
        rows.columns = {name: part(array) for name, array in self.columns.items()} if needed else {}
        rows._own = None if self._own is None else part(self._own)
        rows._made = {}
        rows._parsed = None
        return rows

    @property
    def lengths(self) -> pa.Array:
        """Code points of the texts."""
        if "lengths" not in self._made:
            self._made["lengths"] = pc.utf8_length(self.batch.column("text"))
        return self._made["lengths"]

    @property
    def own(self) -> pa.LargeStringArray:
        """The documents' own attributes as JSON text, null for none."""
        if self._own is None:
            raw = self.batch.column(RAW)
            cut, data = string_parts_of(raw.fill_null(b"\n") if raw.null_count else raw)
            self._own = member_texts(Lines(data[cut[0] : cut[-1]], cut - cut[0]), ATTRIBUTES)
            strange = pc.fill_null(pc.invert(pc.starts_with(self._own, "{")), False)
            if pc.any(strange).as_py():
                raise self.error(
                    pc.index(strange, True).as_py(),
                    "attributes that are no object; expected an object, or none",
                )
        return self._own

    def error(self, at: int, found: str) -> SchemaError:
        """Return an error about a row of this block."""
        row = int(self.numbers[at])
        return SchemaError(
            f"{layout.document_path(self.work.shard.path)}, row {row}: {found}.",
            shard=self.work.shard.path,
            row=row,
        )

    def mask(self, item: Filter) -> pa.BooleanArray:
        """Return for which rows a filter matches."""
        if item.rule is not None:
            return self._rule_mask(item.rule)
        return pa.array([row is not None and item.matches(row) for row in self.parsed()], pa.bool_())

    def _rule_mask(self, rule: Rule) -> pa.BooleanArray:
        columns = {name: self.column(name) for name in rule.names}
        return rule.mask(columns or {"": pa.nulls(self.batch.num_rows)})

    def column(self, name: str) -> pa.Array:
        """Return a column by the name that filters know it under."""
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> pa.Array:
        if name.startswith(ATTRIBUTE_PREFIX):
            return self._attribute(name.removeprefix(ATTRIBUTE_PREFIX))
        return self.columns[name] if name in self.columns else self.batch.column(name)

    def _attribute(self, key: str) -> pa.Array:
        """Return the values of an attribute; later sets win over earlier ones, and all over the documents themselves."""
        found = [self.columns[prefix_of(name) + key] for name in self.recipe.columns[key]]
        if key in self.recipe.own:
            found.insert(0, self._own_columns()[key])
        if not found:
            return pa.nulls(self.batch.num_rows, _SPANS)
        if key in self.recipe.lists:
            found = [as_spans(column, self.lengths) for column in found]
        return found[0] if len(found) == 1 else pc.coalesce(*reversed(found))

    def _own_columns(self) -> Mapping[str, pa.Array]:
        lines = join_texts('{"id":"","attributes":', self.own.fill_null("{}"), "}\n")
        cut, data = string_parts_of(lines)
        batch = scan_attributes(data[cut[0] : cut[-1]], cut - cut[0], self.recipe.own)
        for row, error in batch.errors:
            raise self.error(row, f"{error.expected}, as in earlier documents")
        return batch.columns

    def for_where(self) -> Mapping[str, pa.Array]:
        """Return the columns of the `where` rule."""
        columns = {
            name: self.batch.column(name) for name in self.batch.schema.names if name in DOCUMENT_NAMES
        }
        columns.update({name: self.columns[name] for name in self.work.fields})
        for key, name in self.recipe.where_keys.items():
            column = self.columns[prefix_of(name) + key]
            columns[key] = (
                SpanItem(Name(key), 0, 2).evaluate({key: column}).data
                if pa.types.is_list(column.type)
                else column
            )
        return columns

    def objects(self) -> pa.LargeStringArray:
        """Return all attributes of each row as one JSON object: the documents' own, and over them those of the sets."""
        own = self.own
        found = [self._object(name) for name in self.recipe.objects]
        if own.null_count < len(own) or not found:
            found.insert(0, own)
        return join_objects(found)

    def _object(self, name: str) -> pa.LargeStringArray:
        prefix = prefix_of(name)
        if prefix + OBJECT in self.columns:
            return self.columns[prefix + OBJECT]
        (source,) = (item for item in self.work.sources if item.name == name)
        return object_texts(
            {key: self.columns[prefix + key] for key in source.kinds}, source.kinds, self.lengths
        )

    def parsed(self) -> list[dict[str, Any] | None]:
        """Return each document as Python's JSON values with its attributes merged in; None for one that cannot be read."""
        if self._parsed is None:
            readable = self.batch.column("id").is_valid()
            pairs = zip(self.batch.column(RAW), self.objects(), readable, strict=True)
            self._parsed = [_document(raw, text) if valid.as_py() else None for raw, text, valid in pairs]
        return self._parsed

    def replaced(self, spans: Sequence[SpanWork]) -> Replaced:
        """Replace spans in all texts."""
        try:
            return replace_spans(self.batch.column("text"), [self._span_rule(span) for span in spans])
        except SchemaError as error:
            raise self.error(int(str(error.details.get("row", 0))), str(error).rstrip(".")) from None

    def _span_rule(self, span: SpanWork) -> SpanRule:
        rule = span.rule
        column = (
            self.column(ATTRIBUTE_PREFIX + span.key) if span.key is not None else self._selected_spans(span)
        )
        texts = pa.array([rule.replacement], pa.large_string())
        if span.column is not None:
            texts = self.column(span.column)
        elif rule.selects:
            texts = self._selected_texts(span, column)
        return SpanRule(rule.span, column, rule.min_score, rule.max_score, texts, expands=not rule.selects)

    def _selected_spans(self, span: SpanWork) -> pa.ListArray:
        rows = [self._spans_of(span, at, row) for at, row in enumerate(self.parsed())]
        return pa.array(rows, _SPANS)

    def _spans_of(self, span: SpanWork, at: int, row: dict[str, Any] | None) -> list[dict[str, float]]:
        found: list[dict[str, float]] = []
        for value in select(span.rule.span, span.rule.syntax, row) if row is not None else ():
            spans = [value] if _is_span(value) else value
            if spans is None:
                continue
            if not isinstance(spans, list) or not all(map(_is_span, spans)):
                raise self.error(at, f"{span.rule.span} finds {value!r}; expected spans [start, end, score]")
            found += [dict(zip(("start", "end", "score"), item, strict=False)) for item in spans]
        return found

    def _selected_texts(self, span: SpanWork, column: pa.ListArray) -> pa.LargeStringArray:
        """Ask the documents that have spans for what replaces them."""
        text, syntax = span.rule.selector()
        counts = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
        found = [
            _one_string(select(text, syntax, row)) if count and row is not None else None
            for count, row in zip(counts, self.parsed(), strict=True)
        ]
        return pa.array(found, pa.large_string())

    def edits(self, replaced: Replaced | None) -> list[Edit]:
        """Return what changes in the lines of these rows."""
        wishes = self.recipe.wishes
        edits = {name: Edit(name, None) for name in wishes.discard_fields}
        changed = replaced is not None and bool(replaced.count)
        if changed and "text" not in edits:
            assert replaced is not None
            edits["text"] = Edit(
                "text", _where(replaced.changed, lambda mask: string_texts(replaced.texts.filter(mask)))
            )
        if ATTRIBUTES not in edits and (wishes.merge_attributes or changed):
            attributes = self.objects() if wishes.merge_attributes else self.own
            if changed:
                assert replaced is not None
                attributes = move_spans(attributes, replaced)
            edits[ATTRIBUTES] = Edit(ATTRIBUTES, attributes)
        if wishes.provenance:
            edits[METADATA] = Edit(METADATA, self._provenance(METADATA in edits))
        return list(edits.values())

    def _provenance(self, anew: bool) -> pa.LargeStringArray:
        """Return the metadata of each row with the place of the row in it; `anew`: with nothing else."""
        name = self.work.shard.path.rsplit("/", 1)[-1]
        places = join_texts(f"{name}:", pa.array(self.numbers + 1).cast(pa.large_string()))
        metadata = self.batch.column(METADATA)
        known = pc.fill_null(pc.starts_with(metadata, "{"), False)
        if anew:
            known = pa.repeat(pa.scalar(False), len(metadata))
        lines = join_texts(pc.if_else(known, metadata, pa.scalar("{}", pa.large_string())), "\n")
        spliced = splice(lines, [Edit(PROVENANCE, string_texts(places))])
        return pc.utf8_rtrim(spliced.cast(pa.large_string()), characters="\n")


_SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("score", pa.float64())]))


def _document(raw: pa.Scalar, attributes: pa.Scalar) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(raw.as_py())
    inside = msgspec.json.decode(attributes.as_py()) if attributes.is_valid else {}
    document[ATTRIBUTES] = {key: value for key, value in inside.items() if value is not None}
    return document


def _is_span(value: object) -> bool:
    """Tell whether a value is ``[start, end, score]``."""
    if not isinstance(value, list) or len(value) < 3:
        return False
    numbers = all(isinstance(item, int | float) and not isinstance(item, bool) for item in value[:3])
    return numbers and float(value[0]).is_integer() and float(value[1]).is_integer()


def _one_string(values: Sequence[object]) -> str | None:
    return values[0] if len(values) == 1 and isinstance(values[0], str) else None


def _where(mask: npt.NDArray[np.bool_], make: Any) -> pa.LargeStringArray:
    """Return what `make` gives for the rows of `mask`, null in the others (n,)."""
    places = np.cumsum(mask) - 1
    return make(pa.array(mask)).take(pa.array(places, mask=~mask))
