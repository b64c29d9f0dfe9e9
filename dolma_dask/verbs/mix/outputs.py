"""Documents as outputs of a mix: a file for each shard, or a piece that packed and shuffled files are put together from.

In listing order a piece is a file of small members, which the last pass only has to copy; for a shuffle see `dolma_dask.verbs.mix.scatter`.
Disk: the stored size of what is kept, once (twice while a shuffle is sorted).
"""

from dataclasses import dataclass
from typing import ClassVar

from dolma_dask.dataset import Shard
from dolma_dask.engine import Unit
from dolma_dask.formats import layout
from dolma_dask.formats.documents import RAW
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record
from dolma_dask.verbs.mix.scatter import ScatterSink, piece_record
from dolma_dask.verbs.sinks import DocumentRows, ShardFacts, WriterSink
from dolma_dask.writers.documents import RowWriter, open_writer
from dolma_dask.writers.jsonl import JsonlWriter


@dataclass(frozen=True)
class DocumentOutput:
    """A file of documents for each shard."""

    root: str
    file_format: FileFormat | None  # None: that of the input file
    prefix: str = ""  # of output paths
    verb: ClassVar[str] = "mix"
    columns: ClassVar[tuple[str, ...]] = (RAW,)

    def path(self, shard: Shard) -> str:
        """Return the output path of a shard, relative to the root."""
        return self.prefix + layout.document_path(layout.with_format(shard.path, self.file_format))

    def open(self, unit: Unit, shard: str) -> "DocumentSink":
        """See `dolma_dask.verbs.sinks.Output`."""
        return DocumentSink(open_writer(self.root, unit.name))


class DocumentSink(WriterSink[RowWriter]):
    """Writes the lines of documents."""

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.verbs.sinks.Sink`."""
        assert rows.lines is not None
        self.writer.write(rows.lines)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.verbs.sinks.Sink`."""
        written = self.writer.record
        return facts.record(
            unit,
            (written, *quarantined),
            int(facts.counts["documents_out"]),
            ids_digest=facts.ids_digest,
            content_digest=facts.content_digest,
            counts={"bytes_out": written.bytes, "unproved_attribute_files": len(facts.unproved)},
            info={"unproved": list(facts.unproved)},
        )


@dataclass(frozen=True)
class PieceOutput:
    """A piece for each shard, in the work folder of a packed or shuffled mix."""

    root: str  # of the output, for the quarantine
    folder: str  # of the pieces
    member_bytes: int
    seed: int | None  # of a shuffle
    buckets: int  # of a shuffle
    verb: ClassVar[str] = "mix"
    columns: ClassVar[tuple[str, ...]] = (RAW,)

    def open(self, unit: Unit, shard: str) -> "PieceSink | ScatterSink":
        """See `dolma_dask.verbs.sinks.Output`."""
        if self.seed is None:
            return PieceSink(JsonlWriter(self.folder, unit.name, self.member_bytes))
        return ScatterSink(self.folder, unit.name, shard, self.seed, self.buckets)


class PieceSink(WriterSink[JsonlWriter]):
    """Writes the lines of documents as a file of small members."""

    def write(self, rows: DocumentRows) -> None:
        """See `dolma_dask.verbs.sinks.Sink`."""
        assert rows.lines is not None
        self.writer.write(rows.lines)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.verbs.sinks.Sink`."""
        return piece_record(unit, facts, (self.writer.record,), self.writer.text_bytes, quarantined)
