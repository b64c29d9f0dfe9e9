"""The work of `mix` on one shard: rows from `dolma_dask.stages.mixing.rows` into sinks that all take the same reading."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from dolma_dask.dataset import Shard
from dolma_dask.engine import Task, Unit
from dolma_dask.formats import layout
from dolma_dask.formats.digests import RowDigest
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io.quarantine import Quarantine, Quarantines, RecordPolicy
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record
from dolma_dask.stages.mixing.recipe import MixWork
from dolma_dask.stages.mixing.rows import MixedShard
from dolma_dask.stages.sinks import Kept, ReadShard, RecordedSink, Sink, WriterSink
from dolma_dask.tokens.engine import encoding_once
from dolma_dask.writers.base import RowWriter
from dolma_dask.writers.open import open_writer

Closed = TypeVar("Closed")


class Output(Protocol):
    """A kind of files that shards become; small and picklable.

    Attributes
    ----------
    root : str
        Below which the bad records are set aside.
    verb : str
        Under whose name that is.
    """

    @property
    def root(self) -> str: ...

    @property
    def verb(self) -> str: ...

    def sink(self, unit: Unit, path: str, place: Any) -> RecordedSink:
        """Return what takes the rows of the shard `path`; `place` is what only this output knows of it."""
        ...


@dataclass(frozen=True)
class PourWork:
    """A shard, and what becomes of it.

    Attributes
    ----------
    mix : MixWork
        What is read and done.
    places : Mapping[str, tuple of (int, object)]
        By unit: which output of the stage makes it, and what that must know.
    """

    mix: MixWork
    places: Mapping[str, tuple[int, Any]]


@dataclass(frozen=True)
class MixStage:
    """The work of `mix` on one shard.

    Attributes
    ----------
    outputs : tuple of Output
        What can be made.
    policy : RecordPolicy
        What happens to bad records.
    """

    outputs: tuple[Output, ...]
    policy: RecordPolicy = field(default_factory=RecordPolicy)
    verb: str = "mix"

    def run_shard(self, task: Task) -> list[Record]:
        """Mix one shard; see `dolma_dask.engine.Stage`."""
        work: PourWork = task.work
        path = work.mix.shard.path
        asked = [work.places[unit.name] for unit in task.units]
        outputs = [self.outputs[number] for number, _ in asked]
        quarantines = Quarantines(
            [Quarantine(output.root, output.verb, path, self.policy) for output in outputs]
        )
        sinks = [
            output.sink(unit, path, place)
            for output, unit, (_, place) in zip(outputs, task.units, asked, strict=True)
        ]
        rows = MixedShard(work.mix, self.policy, quarantines)
        ids, content, bad = pour(rows, sinks, quarantines.close)
        state = rows.reader.state
        read = ReadShard(path, state.inputs, dict(rows.counts), tuple(state.unproved), ids, content)
        return [
            sink.record(unit, read, files) for sink, unit, files in zip(sinks, task.units, bad, strict=True)
        ]


def pour(rows: MixedShard, sinks: Sequence[Sink], close: Callable[[], Closed]) -> tuple[str, str, Closed]:
    """Read a shard once into all sinks; return the digests of what they took, and what `close` returns before their files appear."""
    ids, content = RowDigest(), RowDigest()
    with ExitStack() as stack:
        for sink in sinks:
            stack.enter_context(sink)
        for kept in rows:
            ids.update(kept.source, kept.identity)
            content.update(kept.source, kept.identity, kept.text)
            with encoding_once():
                for sink in sinks:
                    sink.take(kept)
        bad = close()
    return ids.hexdigest(), content.hexdigest(), bad


class DocumentSink(WriterSink[RowWriter]):
    """Writes the lines of documents.

    Parameters
    ----------
    writer : RowWriter
        Where to.
    """

    def take(self, rows: Kept) -> None:
        """Append lines."""
        self.writer.write(rows.lines)

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """The file of documents; after a clean exit."""
        return (self.writer.record,)

    def record(self, unit: Unit, read: ReadShard, bad: tuple[FileRecord, ...]) -> Record:
        """See `RecordedSink`."""
        written = self.writer.record
        return Record(
            unit=unit.name,
            shard=read.path,
            key=unit.key,
            inputs=read.inputs,
            files=(written, *bad),
            rows=int(read.counts["documents_out"]),
            ids_digest=read.ids_digest,
            content_digest=read.content_digest,
            counts={
                **read.counts,
                "bytes_out": written.bytes,
                "unproved_attribute_files": len(read.unproved),
            },
            info={"unproved": list(read.unproved)},
        )


@dataclass(frozen=True)
class DocumentOutput:
    """A file of documents for each shard.

    Attributes
    ----------
    root : str
        Of the new version.
    file_format : FileFormat or None
        None: that of the input file.
    prefix : str
        Folder that the output paths begin with.
    """

    verb: ClassVar[str] = "mix"

    root: str
    file_format: FileFormat | None
    prefix: str = ""

    def path(self, shard: Shard) -> str:
        """Return the output path of a shard, relative to the root."""
        return self.prefix + layout.document_path(layout.with_format(shard.path, self.file_format))

    def sink(self, unit: Unit, path: str, place: None) -> DocumentSink:
        """See `Output`."""
        return DocumentSink(open_writer(self.root, unit.name))
