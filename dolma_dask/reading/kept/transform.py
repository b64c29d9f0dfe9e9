"""The transform between the reader and the sinks: a `where` rule, filters, a sample, replaced spans, spliced lines; and all that is counted.

What is not requested costs nothing: kept lines stay views of the block that was read. Documents and attributes go through memory once, a block
of 4 MB at a time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.formats.documents import METADATA, OPTIONAL, RAW, text_bytes
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.layout import format_of
from dolma_dask.io import files
from dolma_dask.io.files import Input, inputs_of
from dolma_dask.io.joined import Joined, NotJoinedError
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block, InputRecord, RuleCount
from dolma_dask.journal import work_key
from dolma_dask.reading.entry_points import EntryPoints
from dolma_dask.reading.joined import is_joinable, read_joined
from dolma_dask.reading.kept.block import MixBlock
from dolma_dask.reading.kept.reasons import Reasons
from dolma_dask.reading.kept.recipe import FilterKind, Recipe, columns_of, prefix_of
from dolma_dask.reading.one_row import aligned_row
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.reading.selection import Selection
from dolma_dask.reading.sets import AttributeSets, AttributeSource
from dolma_dask.reading.tombstones import REMOVED, tombstones_above
from dolma_dask.rules.sampling import sampled
from dolma_dask.rules.splicing import splice
from dolma_dask.rules.tally import Tally
from dolma_dask.sinks.sink import DROPPED, DROPPED_LINES, DocumentRows, ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.text.kernels import Bools

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space, which does not count for the least length of a text."""

VERSION = 4
"""Raised whenever mix writes other bytes for the same input and rule."""

_ALWAYS = ("id", "source", "text")
_ASIDE = frozenset({RAW, DROPPED, DROPPED_LINES})
"""What outputs take besides columns."""


class Transform:
    """Changes the documents of one shard, block by block, and counts.

    Counts are ``documents_in, documents_out, text_bytes_in, text_bytes_out``, and ``spans_replaced``, ``documents_changed``,
    ``documents_too_short``, ``documents_not_sampled``, ``documents_again``, ``documents_beyond_cut`` and ``documents_removed`` where they can be.
    """

    def __init__(self, shard: AlignedShard, recipe: Recipe, columns: frozenset[str]) -> None:
        self._shard, self._recipe = shard, recipe
        self._names = (*_ALWAYS, *sorted(columns.difference(_ALWAYS, _ASIDE)))
        self._writes_lines = RAW in columns
        self._reasons = Reasons(columns) if DROPPED in columns else None
        self._where = [key for key in recipe.filters if key[0] == "where"]
        self._matched = dict.fromkeys(recipe.filters.keys() - self._where, 0)
        self._missing = dict.fromkeys(recipe.filters, 0)
        self.drops = Tally(len(self._where))
        names = ["documents_in", "documents_out", "text_bytes_in", "text_bytes_out"]
        options = recipe.options
        names += ["spans_replaced", "documents_changed"] if options.replacements else []
        names += ["documents_too_short"] if options.min_text_length else []
        names += [REMOVED] if recipe.removed else []
        self._cuts = recipe.cuts.in_shard(shard.shard.path) if recipe.cuts is not None else None
        names += ["documents_not_sampled"] if options.rate is not None else []
        repeats = options.rate is not None or (self._cuts is not None and self._cuts.repeats)
        names += ["documents_again"] if repeats else []
        names += ["documents_beyond_cut"] if recipe.cuts is not None else []
        self.counts: Counter[str] = Counter(dict.fromkeys(names, 0))

    @property
    def rules(self) -> tuple[RuleCount, ...]:
        """Documents so far for which each part of the rule holds or lacks a value, and that each filter matches."""
        held = (self.drops.total[0] - self.drops.dropped[:, 0]).tolist()
        matched = {**self._matched, **dict(zip(self._where, held, strict=True))}
        return tuple(
            RuleCount(*key, matched[key], item.short, self._missing[key])
            for key, item in self._recipe.filters.items()
        )

    def __call__(self, block: Block) -> DocumentRows:
        """Return the documents of a block that go on."""
        rows = MixBlock.of(self._shard, self._recipe, block)
        self._count_in(block.batch)
        rows = self._not_removed(rows) if self._recipe.removed else rows
        kept = self._changed(rows, self._taken(rows, self._kept(rows)))
        self._count_out(kept)
        return kept if self._reasons is None else replace(kept, dropped=self._reasons.end_block(rows))

    @staticmethod
    def joined(transforms: "Sequence[Transform]", block: Joined[Block]) -> DocumentRows:
        """Return the documents of a block with the rows of a shard for each transform, all of the same recipe, which takes documents as they are or drops them."""
        rows = MixBlock.of(transforms[0]._shard, transforms[0]._recipe, block.rows)
        held = _Held.of(rows)
        kept = transforms[0]._unchanged(rows, held.kept)
        for transform, part in zip(transforms, block.parts, strict=True):
            batch = rows.batch.slice(part.start, part.stop - part.start)
            transform._count_in(batch)
            transform._count_held(batch, held.part(part))
            transform._count_out(kept.part(part))
        return kept

    def _count_in(self, batch: pa.RecordBatch) -> None:
        self.counts["documents_in"] += batch.num_rows
        self.counts["text_bytes_in"] += text_bytes(batch.column("text"))

    def _count_out(self, kept: DocumentRows) -> None:
        self.counts["documents_out"] += len(kept.numbers)
        self.counts["text_bytes_out"] += text_bytes(kept.block.column("text"), kept.taken)

    def _not_removed(self, rows: MixBlock) -> MixBlock:
        """Return the rows that were not taken down; no output names the others."""
        gone = self._recipe.removed.find(rows.batch.column("source"), rows.batch.column("id"))
        self.counts[REMOVED] += int(np.count_nonzero(gone))
        return rows.without(gone)

    def _leave_out(self, count: str, mask: Bools) -> None:
        """Count rows (n,) of the block that do not go on, though rule and filters keep them."""
        self.counts[count] += int(np.count_nonzero(mask))
        if self._reasons is not None:
            self._reasons.add(count.removeprefix("documents_").replace("_", " "), mask)

    def _kept(self, rows: MixBlock) -> pa.BooleanArray:
        """Return which rows the `where` rule and the filters keep."""
        held = _Held.of(rows)
        self._count_held(rows.batch, held)
        if self._reasons is not None:
            self._add_reasons(self._reasons, held)
        return held.kept

    def _count_held(self, batch: pa.RecordBatch, held: "_Held") -> None:
        """Count what holds of rows (n,)."""
        for key, holds in held.filters.items():
            if key[0] != "where":
                self._matched[key] += holds.true_count
            elif key in held.missing:
                self._missing[key] += held.missing[key].true_count
        if self._where:
            self._count(batch.select(["source", "text"]), held.readable, held.of_kind("where"))

    def _count(
        self, batch: pa.RecordBatch, readable: pa.BooleanArray, holds: Sequence[pa.BooleanArray]
    ) -> None:
        """Count what the parts of the `where` rule drop of the rows that could be read."""
        dropped = ~np.stack([mask.to_numpy(zero_copy_only=False) for mask in holds])
        if readable.false_count:
            batch, dropped = batch.filter(readable), dropped[:, readable.to_numpy(zero_copy_only=False)]
        self.drops.count(dropped, pc.binary_length(batch.column("text")).to_numpy(), batch.column("source"))

    def _add_reasons(self, reasons: Reasons, held: "_Held") -> None:
        """Tell what `Recipe.conditions` drop."""
        holds, include = held.of_kind("where"), held.of_kind("include")
        holds += [reduce(pc.or_, include)] if include else []
        drops = [pc.invert(held.readable), *(pc.and_not(held.readable, one) for one in holds)]
        for name, mask in zip(self._recipe.conditions, [*drops, *held.of_kind("exclude")], strict=True):
            reasons.add(name, mask)

    def _taken(self, rows: MixBlock, kept: pa.BooleanArray) -> pa.BooleanArray | pa.Int64Array:
        """Return which of the rows that are kept are taken: a mask, or row numbers where some are taken several times."""
        if self._cuts is not None and self._recipe.cuts is not None:
            by = self._recipe.cuts.by
            source, identity = rows.batch.column("source"), rows.batch.column("id")
            times = self._cuts.times(source, identity, by and rows.beside(by), rows.numbers)
            return self._as_often(kept, times, "documents_beyond_cut", may_repeat=self._cuts.repeats)
        rate, seed = self._recipe.options.rate, self._recipe.options.seed
        if rate is None:
            return kept
        times_each, part = divmod(rate, 1.0)
        more = sampled(rows.batch.column("source"), rows.batch.column("id"), part, seed)
        times = int(times_each) + more.to_numpy(zero_copy_only=False)
        return self._as_often(kept, times, "documents_not_sampled", may_repeat=True)

    def _as_often(
        self, kept: pa.BooleanArray, times: npt.NDArray[np.int64], left_out: str, *, may_repeat: bool
    ) -> pa.BooleanArray | pa.Int64Array:
        """Return the rows that are kept, as often as they are taken, next to each other; count those that are not under a name."""
        is_kept = kept.to_numpy(zero_copy_only=False)
        times = times * is_kept
        self._leave_out(left_out, is_kept & (times == 0))
        if not may_repeat:
            return pa.array(times > 0)
        self.counts["documents_again"] += int(np.maximum(times - 1, 0).sum())
        return pa.array(np.repeat(np.arange(len(kept)), times))

    def _changed(self, rows: MixBlock, taken: pa.BooleanArray | pa.Int64Array) -> DocumentRows:
        """Replace spans in the rows that are taken, leave out those that became too short, and splice the lines of the others."""
        if self._recipe.changes_nothing and pa.types.is_boolean(taken.type):
            return self._unchanged(rows, taken)
        spans = self._recipe.spans
        kept = rows.take(taken)
        replaced = kept.replaced(spans) if spans else None
        texts = kept.batch.column("text") if replaced is None else replaced.texts
        long = _is_long(texts, self._recipe.options.min_text_length)
        if long is not None and not long.all():
            self.counts["documents_too_short"] += int((~long).sum())
            if self._reasons is not None:
                self._reasons.add("too short", np.isin(rows.numbers, kept.numbers[~long]))
            mask = pa.array(long)
            kept, texts = kept.take(mask), texts.filter(mask)
            replaced = None if replaced is None else kept.replaced(spans)
        if replaced is not None:
            self.counts["spans_replaced"] += replaced.count
            self.counts["documents_changed"] += int(replaced.changed.sum())
        lines = splice(kept.batch.column(RAW), kept.edits(replaced)) if self._writes_lines else None
        columns = {name: texts if name == "text" else kept.beside(name) for name in self._names}
        return DocumentRows(pa.record_batch(columns), kept.numbers, lines)

    def _unchanged(self, rows: MixBlock, taken: pa.BooleanArray) -> DocumentRows:
        """Return the rows that are taken without a copy of any."""
        batch = pa.record_batch({name: rows.beside(name) for name in self._names})
        lines = rows.batch.column(RAW) if self._writes_lines else None
        mask = None if taken.true_count == len(taken) else taken.to_numpy(zero_copy_only=False)
        numbers = rows.numbers if mask is None else rows.numbers[mask]
        return DocumentRows(batch, numbers, lines, taken=mask)


class _Held(Struct, frozen=True):
    """For which rows (n,) of a block the parts of the `where` rule and the filters hold."""

    readable: pa.BooleanArray  # rows that are documents; nothing holds for others
    filters: Mapping[tuple[FilterKind, str], pa.BooleanArray]
    missing: Mapping[tuple[FilterKind, str], pa.BooleanArray]  # of parts of the rule: which lack a value

    @classmethod
    def of(cls, rows: MixBlock) -> "_Held":
        """Look at all rows."""
        readable = pc.is_valid(rows.batch.column("id"))
        filters = rows.recipe.filters
        missing = {
            key: item.rule for key, item in filters.items() if key[0] == "where" and item.rule is not None
        }
        return cls(
            readable,
            {key: pc.and_(rows.mask(item), readable) for key, item in filters.items()},
            {key: pc.and_(rows.missing(rule), readable) for key, rule in missing.items()},
        )

    def of_kind(self, kind: FilterKind) -> list[pa.BooleanArray]:
        """Return those of one kind."""
        return [holds for key, holds in self.filters.items() if key[0] == kind]

    def part(self, rows: slice) -> "_Held":
        """Return some of the rows."""
        filters = {key: mask[rows] for key, mask in self.filters.items()}
        return _Held(self.readable[rows], filters, {key: mask[rows] for key, mask in self.missing.items()})

    @property
    def kept(self) -> pa.BooleanArray:
        """Rows that go on, as far as these decide."""
        kept = reduce(pc.and_, self.of_kind("where"), self.readable)
        if include := self.of_kind("include"):
            kept = pc.and_(kept, reduce(pc.or_, include))
        exclude = self.of_kind("exclude")
        return pc.and_not(kept, reduce(pc.or_, exclude)) if exclude else kept


def _is_long(texts: pa.LargeStringArray, min_bytes: int) -> npt.NDArray[np.bool_] | None:
    if not min_bytes:
        return None
    sizes = pc.binary_length(pc.utf8_trim(texts, characters=WHITE_SPACE))
    return np.asarray(sizes.to_numpy(zero_copy_only=False)) >= min_bytes


class MixSource(Struct, frozen=True):
    """Documents of one shard, read and transformed; see `dolma_dask.engine.documents.DocumentSource`."""

    shard: AlignedShard
    recipe: Recipe
    name: str
    has_roots: bool = False  # paths of inputs include the root of their dataset

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Document and attribute files."""
        inputs = inputs_of(self.shard.root, self.shard.files)
        if not self.has_roots:
            return inputs
        return tuple(replace(item, info=replace(item.info, path=item.url)) for item in inputs)

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[DocumentRows]:
        """Yield the documents that go on."""
        transform = Transform(self.shard, self.recipe, columns)
        shard = replace(self.shard, documents=self._documents(columns))
        reader = shard.open(max_record_bytes=policy.max_record_bytes, quarantine=quarantine)
        for block in reader:
            yield transform(block)
        facts.unproved = reader.state.unproved
        self._tell(facts, transform, reader.state.inputs, quarantine.count)

    @property
    def joins(self) -> str | None:
        """What it has in common with others that it may be read with; None: it is read alone."""
        return self.shard.root if self.recipe.joins and is_joinable(self.shard) else None

    @staticmethod
    def read_joined(
        sources: "Sequence[MixSource]",
        columns: frozenset[str],
        policy: RecordPolicy,
        facts: Sequence[ShardFacts],
    ) -> Joined[DocumentRows]:
        """Return the documents of small shards that go on."""
        if DROPPED in columns or any(source.recipe is not sources[0].recipe for source in sources):
            raise NotJoinedError("rows that do not go on are written, or recipes differ")
        wanted = [replace(one.shard, documents=one._documents(columns)) for one in sources]
        block, inputs = read_joined(wanted, policy.max_record_bytes)
        transforms = [Transform(source.shard, source.recipe, columns) for source in sources]
        rows = Transform.joined(transforms, block)
        for source, fact, transform, read in zip(sources, facts, transforms, inputs, strict=True):
            source._tell(fact, transform, read, 0)
        return Joined(rows, block.cuts)

    def _tell(
        self, facts: ShardFacts, transform: Transform, inputs: Sequence[InputRecord], bad_records: int
    ) -> None:
        """Complete the facts about the shard."""
        if self.has_roots:
            root = self.shard.root
            inputs = [replace(one, path=files.join(root, one.path)) for one in inputs]
        facts.inputs = tuple(inputs)
        facts.counts = {**transform.counts, "bad_records": bad_records}
        facts.rules = transform.rules
        facts.drops = transform.drops.to_json() if transform.drops.conditions else None

    def reasons(self, row: int, points: EntryPoints) -> tuple[str, ...]:
        """Return the conditions that drop the document in one row; none: it is kept."""
        columns = frozenset({DROPPED})
        transform = Transform(self.shard, self.recipe, columns)
        dropped = transform(
            aligned_row(replace(self.shard, documents=self._documents(columns)), row, points)
        ).dropped
        assert dropped is not None
        return tuple(msgspec.json.decode(dropped.reasons[0].as_py())) if len(dropped.numbers) else ()

    def _documents(self, columns: frozenset[str]) -> tuple[str, ...]:
        """Return the columns of documents to read: those that sinks take, and those that rules and changes need."""
        beside = self.recipe.beside
        columns = columns - _ASIDE | ({RAW} if {RAW, DROPPED_LINES} & columns else frozenset())
        named = columns_of(self.recipe.filters, self.recipe.spans) | beside.keys()
        needed = [*_ALWAYS, *sorted(columns - beside.keys()), *(name for name in OPTIONAL if name in named)]
        needed += [METADATA] if self.recipe.options.provenance and RAW in columns else []
        needed += [RAW] if self.recipe.looks_inside else []
        return tuple(dict.fromkeys(needed))


class Mixture(Struct, frozen=True):
    """A dataset with what is done to its documents."""

    selection: Selection
    recipe: Recipe
    sets: AttributeSets | None  # attribute sets to read
    kinds: Mapping[str, Mapping[str, AttributeKind]]  # by set: the keys to read
    fields: Mapping[str, AttributeKind]  # of the metadata
    notes: tuple[str, ...] = ()  # for people

    @property
    def dataset(self) -> Dataset:
        """The documents."""
        return self.selection.dataset

    @property
    def sources(self) -> tuple[MixSource, ...]:
        """Documents of all shards."""
        return tuple(map(self.source, self.dataset.shards))

    def of(self, dataset: Dataset) -> "Mixture":
        """Return the same of some of the shards."""
        return replace(self, selection=replace(self.selection, dataset=dataset))

    def for_targets(self, *roots: str) -> "Mixture":
        """Return the same without the documents that were taken down from the roots of what is written, either."""
        removed = self.recipe.removed.also(tombstones_above(*roots))
        return replace(self, recipe=replace(self.recipe, removed=removed))

    def inputs(self, shard: Shard) -> tuple[Input, ...]:
        """Return the inputs of the source of a shard without a name of its own."""
        infos = self.sets.inputs(shard) if self.sets else (shard_info(shard),)
        return inputs_of(self.dataset.root, infos)

    def source(self, shard: Shard, name: str | None = None) -> MixSource:
        """Return the documents of one shard; one with a name of its own is known by paths with roots."""
        sources = tuple(map(self._attributes, self.sets.sources(shard, ()))) if self.sets else ()
        dataset = self.dataset
        aligned = AlignedShard(
            dataset.root,
            shard,
            sources=sources,
            fields=self.fields,
            default_source=dataset.source,
            checked=True,
            exact=True,
        )
        return MixSource(aligned, self.recipe, name or shard.path, name not in (None, shard.path))

    def _attributes(self, source: AttributeSource) -> AttributeSource:
        """Return an attribute file with the keys to read."""
        assert self.sets is not None
        name, kinds = source.name, dict(self.kinds[source.name])
        is_table, needs_objects = format_of(source.info.path) == "parquet", name in self.recipe.objects
        if is_table:  # scores of documents are plain numbers there
            declared = self.sets.kinds[name]
            scores = {key: kind for key, kind in declared.items() if kind == "document" and key in kinds}
            kinds.update(declared if needs_objects else scores)
        return replace(
            source, kinds=kinds, prefix=prefix_of(name), with_objects=needs_objects and not is_table
        )

    def key(self, policy: RecordPolicy) -> str:
        """Return the key of the documents."""
        return work_key("mix", VERSION, {**self.params(), **policy.params()})

    def params(self) -> dict[str, Any]:
        """Return what decides the output besides the bytes of the inputs."""
        rule, cuts = self.selection.rule, self.recipe.cuts
        return {
            "where": None if rule is None else rule.canonical(),
            "attributes": list(self.sets.files) if self.sets else [],
            **self.dataset.params,
            **self.recipe.options.recipe_params(),
            **({} if cuts is None else cuts.params()),
            **self.recipe.removed.params,
        }
