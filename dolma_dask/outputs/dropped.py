"""Documents that a mix does not keep: a line for each, with its place and the conditions that dropped it."""

from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine import Plan, Unit
from dolma_dask.engine.documents import DocumentList, file_plan
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.documents import RAW
from dolma_dask.formats.json.write import string_texts
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record
from dolma_dask.sinks.jsonl import JsonlWriter
from dolma_dask.sinks.sink import DROPPED, DROPPED_LINES, DocumentRows, DroppedRows, FileSink, ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import join_texts

VERSION = 1
"""Raised whenever other bytes are written for the same documents and rule."""


class DroppedOutput(Struct, frozen=True):
    """A file of dropped documents for each shard."""

    root: str
    has_documents: bool = False  # each line has the document too, as it was read
    verb: ClassVar[str] = "dropped"

    @property
    def columns(self) -> tuple[str, ...]:
        """See `dolma_dask.sinks.sink.Output`."""
        return (DROPPED, DROPPED_LINES) if self.has_documents else (DROPPED,)

    def open(self, unit: Unit, shard: str) -> "DroppedSink":
        """See `dolma_dask.sinks.sink.Output`."""
        return DroppedSink(JsonlWriter(self.root, unit.name), shard)

    def path(self, shard: str) -> str:
        """Return the path of the file of a shard, relative to the root."""
        return layout.with_format(shard, "jsonl.gz")

    def check_apart(self, *roots: str) -> None:
        """Refuse a folder in which datasets or token files lie: all that is below it is of this output."""
        for root in roots:
            if f"{files.resolved(root)}/".startswith(f"{files.resolved(self.root)}/"):
                raise UsageError(
                    f"dropped documents would go to {self.root}, which is or holds {root}; expected a folder of their own. Name another in --dropped."
                )

    def plan(self, documents: DocumentList, names: Sequence[str], policy: RecordPolicy) -> Plan:
        """Return the plan of a file for each shard; `names` are those of the conditions, which stand in the files."""
        plan = file_plan(
            self,
            documents,
            {shard: self.path(shard) for shard in documents.shards},
            policy,
            {"documents": self.has_documents, "conditions": list(names)},
            version=VERSION,
            shown={"documents": self.has_documents or None, "conditions": None},
        )
        return replace(plan, reads=(".jsonl.gz",))


class DroppedSink(FileSink[JsonlWriter]):
    """Writes the dropped documents of one shard."""

    def __init__(self, writer: JsonlWriter, shard: str) -> None:
        super().__init__(writer, documents_dropped=0)
        self._shard = string_texts(pa.array([shard], pa.large_string()))[0].as_py()

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.sinks.sink.Sink`."""
        assert rows.dropped is not None
        self.writer.write(_lines(rows.dropped, self._shard))
        self.counts["documents_dropped"] += len(rows.dropped.numbers)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        # the digests of the facts are of the documents that are kept
        return replace(super().record(unit, facts, quarantined), ids_digest="", content_digest="")


def _lines(rows: DroppedRows, shard: str) -> pa.LargeBinaryArray:
    """Return a line of JSON for each row; a line that could not be read has no id, no source and no document."""
    identity, source = (
        pc.fill_null(string_texts(rows.batch.column(name)), "null") for name in ("id", "source")
    )
    numbers = pa.array(rows.numbers).cast(pa.large_string())
    parts: list[Any] = ['{"id":', identity, ',"source":', source, f',"shard":{shard},"row":', numbers]
    parts += [',"reasons":', rows.reasons]
    if RAW in rows.batch.schema.names:
        text = pc.utf8_rtrim(rows.batch.column(RAW).cast(pa.large_string()), characters="\n")
        parts.append(pc.fill_null(join_texts(',"document":', text), ""))
    return join_texts(*parts, "}\n").cast(pa.large_binary())
