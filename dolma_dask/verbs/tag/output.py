"""What `tag` writes: the attribute sets of a shard, of rows that all sets share; documents that a tagger cannot do, or whose attributes no reader would take."""

import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Task, Unit
from dolma_dask.engine.map import Map, Source
from dolma_dask.errors import DataError
from dolma_dask.formats import layout
from dolma_dask.formats.attributes import (
    AttributeColumn,
    attribute_key,
    encode_rows,
    large_rows,
    without_values,
)
from dolma_dask.formats.documents import encode_value, text_bytes
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.artifacts import Artifacts
from dolma_dask.io.joined import NotJoinedError
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import QUARANTINE_HEAD, TAGGER_FAILED, TOO_LARGE, BadRecord, Block, FileRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.options.base import without_empty
from dolma_dask.reading.catalog import DISTRUSTS, TOKENIZERS
from dolma_dask.reading.joined import is_joinable, read_joined_documents
from dolma_dask.sinks.attributes import ROW_GROUP_SPANS, AttributeSink, AttributeWriter
from dolma_dask.sinks.sink import Output, ShardFacts
from dolma_dask.taggers.base import Tagger, Tally, ViewTagger
from dolma_dask.taggers.scoring import at_row, cannot_do, identity_of, known_labels, score, score_each
from dolma_dask.text import compute as pc
from dolma_dask.text.view import TextView
from dolma_dask.verbs.tag.recorded import FOUND

VERSION = 3
"""Raised whenever the bytes of an attribute file change for the same tagger output."""

MEMBER_BYTES = 2 << 20
"""Text of a gzip member of attributes: each set of a pass holds as much until it is deflated."""

FEW_TAGGERS = 8
"""Taggers of a pass that take a block as it was read."""

PIECE_BYTES = 1 << 20
"""Text that more taggers than `FEW_TAGGERS` take at once, since what each holds of it adds up."""

_NO_OUTPUT = -1
"""Number of the quarantine file that all sets share."""


class TagRows(Struct, frozen=True):
    """Rows of a shard as taggers take them; one that could not be read is empty."""

    block: Block
    batch: pa.RecordBatch  # (n,) without nulls
    view: TextView  # of its texts
    errors: Mapping[int, str]


class Tagged(Struct, frozen=True):
    """What a set has of the rows of several shards."""

    columns: Sequence[AttributeColumn]  # (n,) each
    kinds: Mapping[str, str | None]  # as readers find them
    rows: pa.LargeBinaryArray  # (n,) as JSON


class JoinedRows(Struct, frozen=True):
    """Rows of a shard that was tagged together with others."""

    tagged: Mapping[str, Tagged]  # of all of these shards, by the name of the set
    part: slice  # the rows of this one


class TagOutput(Struct, frozen=True):
    """An attribute set, of one tagger or several."""

    root: str  # of the dataset
    name: str
    taggers: tuple[Tagger, ...]
    file_format: FileFormat | None  # none: that of the document file
    artifacts: Artifacts  # files that taggers use
    longest: int  # bytes of the longest row that readers take
    keeps_failed: (
        bool  # whether a document that a tagger cannot do keeps its row, without the tagger's attributes
    )
    verb: ClassVar[str] = "tag"

    @property
    def cost(self) -> str:
        """See `dolma_dask.engine.map.Map.cost`."""
        return next(
            (tagger.cost for tagger in self.taggers if isinstance(tagger, ViewTagger) and tagger.cost), ""
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the documents that the taggers read."""
        return tuple(sorted({column for tagger in self.taggers for column in tagger.reads}))

    @property
    def joins(self) -> bool:
        """True if a block of several shards gives each what its own block gives."""
        return files.is_local(self.root) and all(
            isinstance(tagger, ViewTagger) and "labels" not in tagger.types.values()
            for tagger in self.taggers
        )

    def tagged(self, rows: TagRows) -> Tagged:
        """Tag the rows of several shards, all of which can be read.

        Raises `NotJoinedError`: a document has attributes that no reader would take.
        """
        columns, kinds = list[AttributeColumn](), dict[str, str | None]()
        for tagger in self.artifacts.all_loaded(self.taggers):
            own = score(self.name, tagger, rows.batch, rows.view)
            columns += own
            kinds.update(pair for column in own for pair in _read_kinds(tagger, column))
        ids, sources, lengths = *(rows.batch.column(name) for name in ("id", "source")), rows.view.lengths
        if large_rows(ids, sources, lengths, columns, {}, self.longest, in_table=False):
            raise NotJoinedError("some attributes are too long")
        return Tagged(columns, kinds, encode_rows(ids, sources, lengths, columns))

    def open(self, unit: Unit, shard: str) -> "TagSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return TagSink(self, unit.name, shard)

    def path(self, shard: Shard) -> str:
        """Return where the set of a shard is written."""
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def key(self, dataset: Dataset, policy: RecordPolicy) -> str:
        """Return the key of the set: taggers, their versions and parameters, and what reading depends on."""
        has_spans = any("spans" in tagger.types.values() for tagger in self.taggers)
        used = {tagger.name: self.artifacts.used_by(tagger) for tagger in self.taggers}
        params = {
            **without_empty({"artifacts": {tagger: found for tagger, found in used.items() if found}}),
            **({"span_groups": ROW_GROUP_SPANS} if has_spans else {}),
            "set": self.name,
            "taggers": list(map(identity_of, self.taggers)),
            **dataset.params,
            "max_record_bytes": policy.max_record_bytes,
        }
        return work_key(self.verb, VERSION, params)


@dataclass(frozen=True)
class TagStage(Map[TagRows | JoinedRows]):
    """Reads each shard once for all sets, which share one view of each block; see `dolma_dask.engine.map.Map`."""

    def rows(
        self, source: Source[Block], columns: frozenset[str], quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[TagRows]:
        """Yield the rows of a shard with a view of their texts."""
        view, size = None, 0
        blocks = source.read(columns, self.policy, quarantine, facts)
        if len(self._taggers) > FEW_TAGGERS:
            blocks = chain.from_iterable(map(_pieces, blocks))
        for block in blocks:
            size += text_bytes(block.batch.column("text"))
            batch = _readable(block)
            view = TextView(batch.column("text"), view)
            yield TagRows(block, batch, view, block.errors)
        facts.counts = {**facts.counts, "text_bytes": size}

    @property
    def _taggers(self) -> list[Tagger]:
        return [
            tagger for output in self.outputs if isinstance(output, TagOutput) for tagger in output.taggers
        ]

    def joins(self, task: Task) -> Hashable:
        """See `Map`: shards of lines are tagged together, unless attributes may depend on the block that they are made of."""
        outputs = [output for output in self._outputs(task) if isinstance(output, TagOutput)]
        are_lines = is_joinable(task.work.source) and not any(map(_is_table, task.units))
        return (
            tuple(output.name for output in outputs) if are_lines and all(o.joins for o in outputs) else None
        )

    def joined_rows(self, tasks: Sequence[Task], facts: Sequence[ShardFacts]) -> Iterator[JoinedRows]:
        """See `Map`."""
        shards = [task.work.source for task in tasks]
        joined = read_joined_documents(shards, self._columns(tasks[0]), self.policy, facts)
        block = joined.rows
        rows = TagRows(block, block.batch, TextView(block.batch.column("text")), {})
        outputs = [output for output in self._outputs(tasks[0]) if isinstance(output, TagOutput)]
        tagged = {output.name: output.tagged(rows) for output in outputs}
        for fact, part in zip(facts, joined.parts, strict=True):
            fact.counts = {**fact.counts, "text_bytes": text_bytes(block.batch.column("text")[part])}
            yield JoinedRows(tagged, part)

    def set_aside(
        self, outputs: Sequence[Output[TagRows | JoinedRows]], quarantine: Quarantine, shard: str
    ) -> list[tuple[FileRecord, ...]]:
        """Write the bad records once for all sets, they belong to the first; and for each set the documents that it refuses."""
        first = outputs[0]
        shared = quarantine.publish(first.root, first.verb, shard, _NO_OUTPUT)
        own = [
            quarantine.publish_refused(output.root, output.verb, shard, number, output.name)
            for number, output in enumerate(outputs)
            if isinstance(output, TagOutput)
        ]
        return [(*shared, *own[0]), *own[1:]]


class TagSink(AttributeSink):
    """Writes the attribute set of one shard."""

    def __init__(self, output: TagOutput, path: str, shard: str) -> None:
        super().__init__(AttributeWriter(output.root, path, member_bytes=MEMBER_BYTES))
        self._shard, self._longest, self._refused_rows = shard, output.longest, 0
        self._is_table = layout.format_of(path) == "parquet"
        self._name, self._reads = output.name, output.columns
        self._keeps_failed = output.keeps_failed
        self._taggers = output.artifacts.all_loaded(output.taggers)
        # a table has the same columns for all documents
        self._known = {
            tagger.name: known_labels(tagger) if self._is_table else {} for tagger in self._taggers
        }
        self._kinds: dict[str, str | None] = {}
        self._tallies: dict[str, Tally] = {
            tagger.name: tagger.tally(tagger.function)
            for tagger in self._taggers
            if isinstance(tagger, ViewTagger) and tagger.tally
        }

    def write(self, rows: TagRows | JoinedRows) -> list[BadRecord]:
        """Run the taggers over rows; see `dolma_dask.sinks.sink.Sink`. A document whose attributes no reader would take has none, and is refused."""
        if isinstance(rows, JoinedRows):
            self._write_part(rows.tagged[self._name], rows.part)
            return []
        ids, sources = rows.block.batch.column("id"), rows.block.batch.column("source")
        columns: list[AttributeColumn] = []
        failed: dict[int, str] = {}
        for tagger in self._taggers:
            own, failed_here = self._tag(tagger, rows)
            columns += own
            failed |= failed_here
            self._kinds.update(pair for column in own for pair in _read_kinds(tagger, column))
        lengths, in_table = rows.view.lengths, self._is_table
        large = large_rows(ids, sources, lengths, columns, rows.errors, self._longest, in_table=in_table)
        if large:
            columns = [without_values(column, large) for column in columns]
        self._count(columns, slice(0, len(ids)))
        self.writer.write(ids, sources, rows.view.lengths, columns, rows.errors)
        refused = {row: (TAGGER_FAILED, why) for row, why in failed.items()}
        refused |= {row: (TOO_LARGE, self._too_large(size)) for row, size in large.items()}
        self._refused_rows += len(refused)
        return [self._refused(rows, row, *why) for row, why in sorted(refused.items())]

    def _write_part(self, tagged: Tagged, part: slice) -> None:
        if part.start == part.stop:  # no rows have kinds
            return
        self._kinds.update(tagged.kinds)
        self._count(tagged.columns, part)
        self.writer.write_rows(tagged.rows[part])

    def _count(self, columns: Sequence[AttributeColumn], part: slice) -> None:
        """Let tallies count some rows."""
        for name, tally in self._tallies.items():
            prefix = attribute_key(self._name, name, "")
            own = [column for column in columns if column.key.startswith(prefix)]
            values = {column.key.removeprefix(prefix): column.values[part] for column in own}
            tally.add(values, part.stop - part.start)

    def _tag(self, tagger: Tagger, rows: TagRows) -> tuple[list[AttributeColumn], dict[int, str]]:
        """Return the attributes of a tagger, and why it could not do some rows, which have none."""
        make = score_each if self._keeps_failed else _score_all
        first = rows.block.first_row
        try:
            columns, failed = make(self._name, tagger, rows.batch, rows.view, self._known[tagger.name])
        except DataError as error:
            raise at_row(error, first) from error
        return columns, {row: f"{cannot_do(tagger)}: {at_row(error, first)}" for row, error in failed.items()}

    def _too_large(self, size: int) -> str:
        return (
            f"a document with attributes that readers take, of at most {self._longest:,} bytes (max_record_bytes), found {size:,} or more; raise the "
            "limit here and wherever they are read, or drop the document"
        )

    def _refused(self, rows: TagRows, row: int, reason: str, expected: str) -> BadRecord:
        document = rows.block.batch.select(["id", "text"]).slice(row, 1)
        head = {
            name: pc.utf8_slice_codeunits(document.column(name), 0, QUARANTINE_HEAD)[0].as_py()
            for name in ("id", "text")
        }
        raw = encode_value(head)[:QUARANTINE_HEAD]
        return BadRecord(self._shard, rows.block.first_row + row, -1, reason, expected, raw)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        if self._refused_rows:
            self.counts["bad_records"] = int(facts.counts.get("bad_records", 0)) + self._refused_rows
        return super().record(unit, facts, quarantined)

    def info(self, facts: ShardFacts) -> dict[str, Any]:
        """Return what readers of the attributes need: the kind of each key, and which columns the set depends on."""
        info: dict[str, Any] = {
            "reads": list(self._reads),
            "taggers": [tagger.name for tagger in self._taggers],
            **without_empty(
                {
                    FOUND: {name: tally.info() for name, tally in self._tallies.items()},
                    TOKENIZERS: {
                        item.name: _tokenizer_of(item) for item in self._taggers if _tokenizes(item)
                    },
                }
            ),
        }
        return info if None in self._kinds.values() else {**info, "kinds": dict(self._kinds)}


def _is_table(unit: Unit) -> bool:
    return layout.format_of(unit.name) == "parquet"


def _tokenizes(tagger: Tagger) -> bool:
    return isinstance(tagger, ViewTagger) and tagger.tokenize is not None


def _tokenizer_of(tagger: Tagger) -> dict[str, Any]:
    """Return what decides the tokens of a tagger, whichever engine makes them."""
    return {name: value for name, value in json.loads(tagger.params).items() if name != DISTRUSTS}


def _score_all(*given: Any) -> tuple[list[AttributeColumn], dict[int, DataError]]:
    return score(*given), {}


def _read_kinds(tagger: Tagger, column: AttributeColumn) -> list[tuple[str, str | None]]:
    """Return under which keys and kinds a reader finds a column; None where only the rows can tell."""
    kind = column.values.type
    if "labels" in tagger.types.values() and not isinstance(tagger, ViewTagger):
        return [(column.key, None)]  # of users: spans of whole documents among them are numbers for readers
    if column.kind != "scalar" and column.kind != "dict":
        return [(column.key, column.kind)]
    if column.kind == "dict":
        members = kind.num_fields if pa.types.is_struct(kind) else 0
        return [(f"{column.key}.{kind.field(i).name}", "dict") for i in range(members)] or [
            (column.key, None)
        ]
    if pa.types.is_boolean(kind):
        return [(column.key, "bool")]
    is_text = pa.types.is_large_string(kind) or pa.types.is_string(kind)
    return [(column.key, "string" if is_text else "number")]


def _pieces(block: Block) -> Iterator[Block]:
    """Yield the rows of a block in pieces of about `PIECE_BYTES` of text."""
    sizes = np.cumsum(pc.binary_length(block.batch.column("text")).fill_null(0))
    cuts = [
        0,
        *np.searchsorted(sizes, np.arange(PIECE_BYTES, sizes[-1] if len(sizes) else 0, PIECE_BYTES)),
        block.num_rows,
    ]
    for start, stop in pairwise(cuts):
        first, end = block.first_row + int(start), block.first_row + int(stop)
        bad = tuple(record for record in block.bad if first <= record.row < end)
        yield Block(block.batch.slice(start, stop - start), first, bad)


def _readable(block: Block) -> pa.RecordBatch:
    """Return the batch with empty strings for rows that could not be read: taggers see no nulls."""
    if not block.bad and not any(column.null_count for column in block.batch.columns):
        return block.batch
    columns = [pc.fill_null(column, "") for column in block.batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=block.batch.schema.names)
