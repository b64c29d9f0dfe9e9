"""attach: what RedPajama-V2 publishes beside its documents -> attribute sets that line up with these.

Rows are joined by the number at the end of their ids, never by their place: a table lacks rows of records that its maker could not read. Quality
signals stay byte for byte, without the values that are null; documents that a table of duplicates lists get the flags of `dedupe`. Memory: a few blocks
per worker. No text is read for signals.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Literal, Self, Unpack, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import Shard, shard_info
from dolma_dask.display import counted
from dolma_dask.engine import Input, Plan, Task, Unit, inputs_of
from dolma_dask.errors import UsageError
from dolma_dask.exchange.flag_rows import flag_column
from dolma_dask.formats import layout
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.layout import FileFormat
from dolma_dask.formats.redpajama import DUPLICATES, QUALITY_SIGNALS, Component
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.redpajama import SignalBlock, TableBlock, read_duplicates, read_signals
from dolma_dask.io.stream import MAX_RECORD_BYTES, StoredFile
from dolma_dask.journal import Journal, Record, dataset_notes, work_key
from dolma_dask.options.shared import (
    DatasetLike,
    RecordArgs,
    as_dataset,
    check_choice,
    check_format,
    checked,
    record_policy,
    run_options,
    selected,
    without_empty,
)
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
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.attributes import AttributeWriter
from dolma_dask.text.columns import code_point_lengths

VERSION = 1
"""Raised whenever attach writes other bytes for the same documents and tables."""

Missing = Literal["fail", "null"]
"""What happens to a shard without a table."""


def attach(
    dataset: DatasetLike,
    tables: str,
    /,
    *,
    name: str,
    missing: Missing = "fail",
    format: FileFormat | None = None,
    source: str | None = None,
    version: str | None = None,
    **options: Unpack[RecordArgs],
) -> Summary:
    """Make attributes of what RedPajama-V2 publishes beside its documents: quality signals, or flags of duplicates.

    Example: dolma-dask attach corpus/rpv2/v0 raw/quality_signals --name rps

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it, whose ids are those of RedPajama-V2 (convert --mapping redpajama_v2 makes them).
    tables : str
        Folder or URL of quality_signals or duplicates, in folders as the shards below documents/: <snapshot>/<shard>/<lang>_<bucket>.signals.json.gz
        or .duplicates.parquet.
    name : str
        Attribute set to write. Signals keep their names; a flag is named as the set: mix --where "NAME is None" keeps the others.
    missing : {"fail", "null"}
        A shard without a table fails, or its documents get no values; such shards are counted.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself.

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
    options = checked(attach, options, RecordArgs)
    layout.check_name(name, "attribute set")
    check_choice("missing", missing, get_args(Missing))
    check_format(format)
    opened = as_dataset(dataset, source, version)
    shards = selected(opened, options).shards
    published = _find_tables(opened.root, files.normalize(tables), [shard.path for shard in opened.shards])
    stage = AttachStage(
        opened.root, opened.source, name, published.component, missing, format, record_policy(options)
    )
    layout.check_no_collision([stage.path(shard) for shard in opened.shards])
    if not options.get("overwrite"):
        _check_component(stage)
    plan = Plan(
        stage=stage,
        root=opened.root,
        tasks=[stage.task(shard, published) for shard in shards],
        params=without_empty(
            {"tables": published.url, "name": name, "missing": missing, "format": format, "source": source}
        ),
        writes=(f"{layout.ATTRIBUTES}/{name}/",),
        version=dolma_dask.__version__,
        other_formats=layout.other_formats(map(stage.path, shards), map(stage.path, opened.shards)),
        bad_is_loss=True,
        notes=dataset_notes(opened),
    )
    return _with_note(engine.run(plan, run_options(options)).summary)


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


def _check_component(stage: "AttachStage") -> None:
    """Refuse to replace signals by flags, or flags by signals."""
    for path, record in Journal(stage.root, stage.verb).by_file().items():
        held = record.info.get("component", stage.component.name)
        is_in_set = path.startswith(f"{layout.ATTRIBUTES}/{stage.name}/")
        if is_in_set and held != stage.component.name and files.stat(files.join(stage.root, path)):
            raise UsageError(
                f"{stage.root}/{path} was made of {held}; expected a free name for {stage.component.name}. Choose another --name, or replace it with "
                "--overwrite."
            )


@dataclass(frozen=True)
class AttachStage:
    """The work of `attach` on one shard."""

    root: str  # of the dataset
    source: str | None  # source of documents that lack the field
    name: str  # of the attribute set
    component: Component
    missing: Missing
    file_format: FileFormat | None  # none: that of the document file
    policy: RecordPolicy = field(default_factory=RecordPolicy)  # what happens to bad records
    verb: str = "attach"

    def path(self, shard: Shard) -> str:
        """Return where the attributes of a shard are written."""
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def task(self, shard: Shard, published: PublishedTables) -> Task:
        """Return the work on `shard`, which reads its documents and its table."""
        table = published.of_shard(shard.path)
        params = {
            "component": self.component.name,
            "name": self.name,
            "source": self.source,
            "max_record_bytes": self.policy.max_record_bytes,
            "missing": None if table and shard.path not in published.incomplete else self.missing,
        }
        unit = Unit(self.path(shard), work_key(self.verb, VERSION, params))
        documents = inputs_of(self.root, [shard_info(shard)])
        return Task(shard.path, (unit,), (*documents, *table), published.url)

    def run_shard(self, task: Task) -> list[Record]:
        """Attach the table of one shard; see `dolma_dask.engine.Stage`."""
        (unit,) = task.units
        document = layout.document_path(task.shard)
        reader = DocumentFile(
            files.join(self.root, document),
            self._columns,
            source=self.source,
            max_record_bytes=self.policy.max_record_bytes,
        )
        quarantine, digests = Quarantine(self.policy), DocumentDigests()
        with ExitStack() as stack:
            values = stack.enter_context(self._values(task))
            writer = stack.enter_context(AttributeWriter(self.root, unit.name))
            for block in reader:
                quarantine.admit(block)
                digests.update(block.batch)
                values.write(writer, block)
            read = values.finish()
            kept = quarantine.publish(self.root, self.verb, task.shard)
        return [
            Record(
                unit=unit.name,
                shard=task.shard,
                key=unit.key,
                inputs=(reader.stored.record(document), *read),
                files=(writer.record, *kept),
                rows=writer.record.rows,
                ids_digest=digests.ids,
                content_digest=digests.content if "text" in self._columns else "",
                counts={
                    "documents_in": writer.record.rows,
                    **values.counts,
                    "bad_records": quarantine.count,
                },
                info={
                    "reads": sorted(self._columns),
                    "kinds": dict(values.kinds),
                    "component": self.component.name,
                },
            )
        ]

    @property
    def _columns(self) -> tuple[str, ...]:
        return ("id", "source", "text") if self.component == DUPLICATES else ("id", "source")

    def _values(self, task: Task) -> "_Values[Any]":
        tables = task.inputs[1:]
        if not tables:
            self._miss(task.work, task.shard)
        open_table: Callable[[str, Input], TableRows[Any]] = _open_duplicates
        if self.component == QUALITY_SIGNALS:
            open_table = partial(_open_signals, max_record_bytes=self.policy.max_record_bytes)
        rows: TableRows[Any] | CombinedRows[Any] | None = None
        if is_combined(self.component, task.shard, tables):
            rows = CombinedRows(self.component, tables, open_table, partial(self._miss, task.work))
        elif tables:
            rows = open_table(task.shard, tables[0])
        return _Flags(self.name, rows) if self.component == DUPLICATES else _Signals(rows)

    def _miss(self, url: str, shard: str) -> None:
        """Refuse documents without a table, unless they may have no values."""
        if self.missing == "fail":
            raise missing_table(self.component, url, shard)


def _open_signals(shard: str, table: Input, max_record_bytes: int) -> TableRows[SignalBlock]:
    stored = StoredFile(table.url)
    # rows may always have `MAX_RECORD_BYTES`: they are longer than their texts
    return TableRows(shard, table, stored, read_signals(stored, max(max_record_bytes, MAX_RECORD_BYTES)))


def _open_duplicates(shard: str, table: Input) -> TableRows[TableBlock]:
    return TableRows(shard, table, StoredFile(table.url), read_duplicates(table.url))


class _Values(Generic[B]):
    """What a table says of the documents of its shard, written block by block; without a table nothing."""

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
        ids, sources, errors = block.batch.column("id"), block.batch.column("source"), _errors(block)
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
        writer.write(ids, sources, lengths, [flag_column(self._name, listed)], _errors(block))


def _errors(block: Block) -> dict[int, str]:
    """Return why rows of a block could not be read."""
    return {
        record.row - block.first_row: f"{record.reason}: expected {record.expected}" for record in block.bad
    }
