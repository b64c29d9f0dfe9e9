"""attach: what RedPajama-V2 publishes beside its documents -> attribute sets that line up with these.

Rows are joined by the number at the end of their ids, never by their place: a table lacks rows of records that its maker could not read. Quality
signals stay byte for byte, without the values that are null; documents that a table of duplicates lists get the flags of `dedupe`. Memory: a few blocks
per worker. No text is read for signals.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, Literal, Self

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask import engine
from dolma_dask.dataset import Shard
from dolma_dask.display import counted
from dolma_dask.engine import Input, Unit, attribute_plan
from dolma_dask.engine.map import Map
from dolma_dask.errors import UsageError
from dolma_dask.exchange.flags import flag_column
from dolma_dask.formats import layout
from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.layout import FileFormat
from dolma_dask.formats.redpajama import DUPLICATES, QUALITY_SIGNALS, Component
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.redpajama import SignalBlock, TableBlock, read_duplicates, read_signals
from dolma_dask.io.stream import MAX_RECORD_BYTES, StoredFile
from dolma_dask.journal import Journal, work_key
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, Format, PublishedDocuments
from dolma_dask.options.records import RecordOptions
from dolma_dask.reading.published import (
    PLACED,
    B,
    CombinedRows,
    PublishedTables,
    Stretch,
    TableRows,
    combined_places,
    is_combined,
    list_tables,
    missing_table,
)
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.attributes import AttributeSink, AttributeWriter
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import code_point_lengths

VERSION = 1
"""Raised whenever attach writes other bytes for the same documents and tables."""

Missing = Literal["fail", "null"]
"""Treatment of a shard without a table."""


@dataclass(frozen=True, kw_only=True)
class AttachOptions(DatasetOptions, RecordOptions):
    """Options of `attach`."""

    name: Annotated[
        str,
        Opt(
            'Attribute set to write. Signals keep their names; a flag is named as the set: mix --where "NAME is None" keeps the others.',
            group=OUTPUT,
        ),
    ]
    missing: Annotated[
        Missing,
        Opt("A shard without a table fails, or its documents get no values; such shards are counted."),
    ] = "fail"
    format: Format = None

    def check(self) -> None:
        """Refuse a name that is none of a folder."""
        super().check()
        layout.check_name(self.name, "attribute set")


@command
def attach(
    dataset: PublishedDocuments,
    tables: Annotated[
        str,
        Opt(
            "Folder or URL of quality_signals or duplicates, in folders as the shards below documents/: "
            "<snapshot>/<shard>/<lang>_<bucket>.signals.json.gz or .duplicates.parquet."
        ),
    ],
    /,
    *,
    options: AttachOptions,
) -> Summary:
    """Make attributes of what RedPajama-V2 publishes beside its documents: quality signals, or flags of duplicates.

    Example: dolma-dask attach corpus/rpv2/v0 raw/quality_signals --name rps

    Returns
    -------
    Summary
        Its counts tell documents without a row in their table, and rows without a document.

    Raises
    ------
    StageError
        Some shards failed: a table is missing, damaged, of another shard or not in order, or ids are others.
    UsageError
        There are no such tables, or the set holds something else; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Rows and documents meet by the number at the end of their ids. Values stay as they are published, byte for byte in JSON lines; a score that is
    null is a missing value.
    """
    opened = options.open(dataset)
    shards = options.selected(opened).shards
    published = _find_tables(opened.root, files.normalize(tables), [shard.path for shard in opened.shards])
    output = AttachedOutput(opened.root, options.name, published.component, options.format)
    stage = Map((output,), options.policy, output.verb)
    every = [output.path(shard) for shard in opened.shards]
    layout.check_no_collision(every)
    if not options.overwrite:
        _check_component(output)
    tasks = []
    for shard in shards:
        documents = AlignedShard(opened.root, shard, output.reads, default_source=opened.source)
        table = published.of_shard(shard.path)
        beside = DocumentsWithTable(documents, output, table, published.url, options.missing)
        key = beside.key(options.policy, is_complete=shard.path not in published.incomplete)
        tasks.append(stage.task(beside, Unit(output.path(shard), key)))
    params = options.params(tables=published.url)
    plan = attribute_plan(stage, opened, (options.name,), tasks, every, params)
    return _with_note(engine.run(plan, options).summary)


def _with_note(summary: Summary) -> Summary:
    """Say which documents have no values or flags because there is no table."""
    missing = int(summary.counts.get("shards_without_table", 0))
    if not missing:
        return summary
    without = int(summary.counts.get("documents_without_row", 0))
    effect = (
        f"{counted(without, 'document')} without values in all"
        if without
        else "none of their documents is flagged"
    )
    return replace(summary, notes=(*summary.notes, f"{counted(missing, 'shard')} without a table: {effect}"))


def _find_tables(root: str, url: str, shards: list[str]) -> PublishedTables:
    found = list_tables(root, url, (QUALITY_SIGNALS, DUPLICATES), shards)
    if len(found) == 1:
        return found[0]
    shard = shards[0] if shards else "2023-06/0000/en_head"
    example = combined_places(root).get(shard, [shard])[0]
    if found:
        raise UsageError(
            f"{url} has quality signals and duplicates of these documents; expected tables of one kind. Name the folder of one, and attach the other "
            "as another set."
        )
    raise UsageError(
        f"{url} has no quality signals or duplicates of these documents; expected files such as {QUALITY_SIGNALS.path(example)} or "
        f"{DUPLICATES.path(example)}, {PLACED}"
    )


def _check_component(output: "AttachedOutput") -> None:
    """Refuse to replace signals by flags, or flags by signals."""
    for path, record in Journal(output.root, output.verb).by_file().items():
        held = record.info.get("component", output.component.name)
        is_in_set = path.startswith(f"{layout.ATTRIBUTES}/{output.name}/")
        if is_in_set and held != output.component.name and files.stat(files.join(output.root, path)):
            raise UsageError(
                f"{output.root}/{path} was made of {held}; expected a free name for {output.component.name}. Choose another --name, or replace it with "
                "--overwrite."
            )


class AttachedOutput(Struct, frozen=True):
    """Attributes of published tables, beside each shard."""

    root: str  # of the dataset
    name: str  # of the attribute set
    component: Component
    file_format: FileFormat | None  # none: that of the document file
    verb: ClassVar[str] = "attach"
    columns: ClassVar[tuple[str, ...]] = ()  # besides those of the shard

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns of the documents that the attributes depend on."""
        return ("id", "source", "text") if self.component == DUPLICATES else ("id", "source")

    def path(self, shard: Shard) -> str:
        """Return where the attributes of a shard are written."""
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def open(self, unit: Unit, shard: str) -> "AttachedSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return AttachedSink(AttributeWriter(self.root, unit.name))


class DocumentsWithTable(Struct, frozen=True):
    """Documents of a shard beside its table; see `dolma_dask.engine.map.Source`."""

    documents: AlignedShard
    output: AttachedOutput
    tables: tuple[Input, ...]
    url: str  # of the folder of all tables
    missing: Missing

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.documents.name

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The document file and the tables."""
        return (*self.documents.inputs, *self.tables)

    def key(self, policy: RecordPolicy, is_complete: bool) -> str:
        """Return the key of the attributes; `is_complete` tells whether all published files of the shard have a table."""
        params = {
            "component": self.output.component.name,
            "name": self.output.name,
            "source": self.documents.default_source,
            **self.documents.shard.params,
            "max_record_bytes": policy.max_record_bytes,
            "missing": None if self.tables and is_complete else self.missing,
        }
        return work_key(self.output.verb, VERSION, params)

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[tuple[Block, "_Values[Any]"]]:
        """Yield rows, each block with what the table says."""
        with self._values(policy.max_record_bytes) as values:
            for block in self.documents.read(columns, policy, quarantine, facts):
                yield block, values
            facts.inputs = (*facts.inputs, *values.finish())
        facts.counts = {**facts.counts, **values.counts}
        facts.info = {
            "reads": sorted(self.output.reads),
            "kinds": dict(values.kinds),
            "component": self.output.component.name,
        }

    def _values(self, max_record_bytes: int) -> "_Values[Any]":
        component, tables = self.output.component, self.tables
        if not tables:
            self._miss(self.name)
        open_table: Callable[[str, Input], TableRows[Any]] = _open_duplicates
        if component == QUALITY_SIGNALS:
            open_table = partial(_open_signals, max_record_bytes=max_record_bytes)
        rows: TableRows[Any] | CombinedRows[Any] | None = None
        if is_combined(component, self.name, tables):
            rows = CombinedRows(component, tables, open_table, self._miss)
        elif tables:
            rows = open_table(self.name, tables[0])
        return _Flags(self.output.name, rows) if component == DUPLICATES else _Signals(rows)

    def _miss(self, shard: str) -> None:
        """Refuse documents without a table, unless they may have no values."""
        if self.missing == "fail":
            raise missing_table(self.output.component, self.url, shard)


class AttachedSink(AttributeSink):
    """Writes the attributes of one shard."""

    def write(self, rows: tuple[Block, "_Values[Any]"]) -> None:
        """Append rows; see `dolma_dask.sinks.sink.Sink`."""
        block, values = rows
        values.write(self.writer, block)


def _open_signals(shard: str, table: Input, max_record_bytes: int) -> TableRows[SignalBlock]:
    stored = StoredFile(table.url)
    # rows may always have `MAX_RECORD_BYTES`: they are longer than their texts
    return TableRows(shard, table, stored, read_signals(stored, max(max_record_bytes, MAX_RECORD_BYTES)))


def _open_duplicates(shard: str, table: Input) -> TableRows[TableBlock]:
    return TableRows(shard, table, StoredFile(table.url), read_duplicates(table.url))


class _Values(Generic[B]):
    """Values of a table for the documents of its shard, written block by block; without a table none."""

    def __init__(self, rows: TableRows[B] | CombinedRows[B] | None) -> None:
        self._rows = rows
        self.kinds: dict[str, AttributeKind] = {}  # of the keys that were written
        self.counts = Counter[str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows is not None:
            self._rows.close()

    def write(self, writer: AttributeWriter, block: Block) -> None:
        """Write the attributes of the next documents."""
        raise NotImplementedError

    def _beside(self, ids: pa.LargeStringArray) -> Iterable[Stretch[B]]:
        return self._rows.beside(ids) if self._rows else [Stretch.without_rows(0, len(ids))]

    def finish(self) -> tuple[InputRecord, ...]:
        """Read the rest of the table; return it as it was read."""
        if self._rows is None:
            self.counts["shards_without_table"] = 1
            return ()
        read, self.counts["rows_without_document"] = self._rows.finish()
        return read


class _Signals(_Values[SignalBlock]):
    """Quality signals under their own names."""

    def __init__(self, rows: TableRows[SignalBlock] | CombinedRows[SignalBlock] | None) -> None:
        super().__init__(rows)
        self.counts["documents_without_row"] = 0
        self._learn(self._rows.block if self._rows else None)

    def _learn(self, block: SignalBlock | None) -> None:
        for name, kind in block.kinds.items() if block else ():
            self.kinds[name] = "spans" if self.kinds.get(name) == "spans" else kind

    def write(self, writer: AttributeWriter, block: Block) -> None:
        ids, sources, errors = block.batch.column("id"), block.batch.column("source"), block.errors
        self.counts["documents_without_row"] += len(ids) - ids.null_count
        for part in self._beside(ids):
            self._learn(part.block)
            self.counts["documents_without_row"] -= len(part.at)
            size = part.stop - part.start
            inside = {row - part.start: why for row, why in errors.items() if part.start <= row < part.stop}
            own_ids, own_sources = ids.slice(part.start, size), sources.slice(part.start, size)
            writer.write_members(own_ids, own_sources, _members(part, size), self.kinds, inside)


def _members(part: Stretch[SignalBlock], size: int) -> pa.LargeStringArray:
    """Return the members of the attributes of each document, empty where it has no row."""
    if part.block is None:
        return pa.repeat(pa.scalar("", pa.large_string()), size)
    found = part.found
    if len(found) == size and found[-1] - found[0] == size - 1:
        return part.block.members.slice(found[0], size)
    rows = np.full(size, -1)
    rows[part.at] = found
    return pc.fill_null(part.block.members.take(pa.array(rows, mask=rows < 0)), "")


class _Flags(_Values[TableBlock]):
    """Flags of the documents that a table lists."""

    def __init__(self, name: str, rows: TableRows[TableBlock] | CombinedRows[TableBlock] | None) -> None:
        super().__init__(rows)
        self._name = name
        self.kinds[name] = "document"
        self.counts["duplicates"] = 0

    def write(self, writer: AttributeWriter, block: Block) -> None:
        ids, sources, texts = (block.batch.column(name) for name in ("id", "source", "text"))
        listed = np.zeros(len(ids), np.bool_)
        for part in self._beside(ids):
            listed[part.start + part.at] = True
        self.counts["duplicates"] += int(listed.sum())
        self.counts["text_bytes"] += text_bytes(texts)
        lengths = code_point_lengths(pc.fill_null(texts, ""))
        writer.write(ids, sources, lengths, [flag_column(self._name, listed)], block.errors)
