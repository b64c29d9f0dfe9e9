"""The work of `mix` on one shard: rows from `dolma_dask.stages.mix_rows` into sinks that all take the same reading.

A sink is anything that takes kept rows and leaves files; documents are the only one so far.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from dolma_dask.dataset import Shard
from dolma_dask.engine import Task, Unit
from dolma_dask.formats import layout
from dolma_dask.formats.digests import RowDigest
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Record
from dolma_dask.stages.mix_recipe import Mixture, MixWork
from dolma_dask.stages.mix_rows import Kept, MixedShard
from dolma_dask.writers.base import RowWriter
from dolma_dask.writers.open import open_writer


class Sink(Protocol):
    """Takes the kept rows of one shard; its files appear on a clean exit, and not at all after an exception."""

    def __enter__(self) -> "Sink": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def take(self, rows: Kept) -> None:
        """Append rows."""
        ...

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """What was written, the main file first; after a clean exit."""
        ...


class DocumentSink:
    """Writes the lines of documents.

    Parameters
    ----------
    writer : RowWriter
        Where to.
    """

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def take(self, rows: Kept) -> None:
        """Append lines."""
        self._writer.write(rows.lines)

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """The file of documents."""
        return (self._writer.record,)


@dataclass(frozen=True)
class MixStage:
    """The work of `mix` on one shard.

    Attributes
    ----------
    target : str
        Of the new version.
    file_format : FileFormat or None
        None: that of the input file.
    policy : RecordPolicy
        What happens to bad records.
    """

    target: str
    file_format: FileFormat | None
    policy: RecordPolicy = field(default_factory=RecordPolicy)
    verb: str = "mix"

    def path(self, shard: Shard) -> str:
        """Return the output path of a shard, relative to the target."""
        return layout.document_path(layout.with_format(shard.path, self.file_format))

    def task(self, mixture: Mixture, shard: Shard, key: str) -> Task:
        """Return the work on `shard`."""
        work = mixture.work(shard)
        return Task(shard.path, (Unit(self.path(shard), key),), mixture.inputs(work), work)

    def run_shard(self, task: Task) -> list[Record]:
        """Mix one shard; see `dolma_dask.engine.Stage`."""
        work: MixWork = task.work
        unit = task.units[0]
        quarantine = Quarantine(self.target, self.verb, work.shard.path, self.policy)
        rows = MixedShard(work, self.policy, quarantine)
        sinks = (DocumentSink(open_writer(self.target, unit.name)),)
        ids, content, kept = pour(rows, sinks, quarantine)
        state = rows.reader.state
        (written, *others) = (file for sink in sinks for file in sink.files)
        record = Record(
            unit=unit.name,
            shard=work.shard.path,
            key=unit.key,
            inputs=state.inputs,
            files=(written, *others, *kept),
            rows=int(rows.counts["documents_out"]),
            ids_digest=ids,
            content_digest=content,
            counts={
                **rows.counts,
                "bytes_out": written.bytes,
                "unproved_attribute_files": len(state.unproved),
            },
            info={"unproved": list(state.unproved)},
        )
        return [record]


def pour(
    rows: MixedShard, sinks: Sequence[Sink], quarantine: Quarantine
) -> tuple[str, str, tuple[FileRecord, ...]]:
    """Read a shard once into all sinks; return the digests of what they took, and the files of the quarantine."""
    ids, content = RowDigest(), RowDigest()
    with ExitStack() as stack:
        for sink in sinks:
            stack.enter_context(sink)
        for kept in rows:
            ids.update(kept.source, kept.identity)
            content.update(kept.source, kept.identity, kept.text)
            for sink in sinks:
                sink.take(kept)
        bad = quarantine.close()
    return ids.hexdigest(), content.hexdigest(), tuple(bad)
