"""First pass of a mix whose files are cut by size or whose rows are shuffled: kept rows of each shard wait in a piece beside the output.

In listing order a piece is a file of small members, which the last pass only has to copy; for a shuffle see `dolma_dask.stages.mixing.scatter`.
Disk: the stored size of what is kept, once (twice while a shuffle is sorted).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from dolma_dask.engine import Task
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Record
from dolma_dask.stages.mixing.recipe import MixWork
from dolma_dask.stages.mixing.rows import MixedShard
from dolma_dask.stages.mixing.scatter import ScatterSink
from dolma_dask.stages.mixing.stage import DocumentSink, pour
from dolma_dask.writers.jsonl import JsonlWriter


class PieceSink(DocumentSink):
    """Writes the kept rows of one shard as a file of small members."""

    def __init__(self, root: str, path: str, member_bytes: int) -> None:
        self._piece = JsonlWriter(root, path, member_bytes)
        super().__init__(self._piece)

    @property
    def text_bytes(self) -> int:
        """Of the piece."""
        return self._piece.text_bytes


@dataclass(frozen=True)
class PieceWork:
    """A shard of the first pass.

    Attributes
    ----------
    path : str
        Of the piece, relative to the folder of pieces.
    name : str
        Of the shard in this run.
    mix : MixWork
        What is read and done.
    has_roots : bool
        Whether paths of inputs are told with the roots of their datasets.
    """

    path: str
    name: str
    mix: MixWork
    has_roots: bool = False

    def told(self, inputs: Sequence[InputRecord]) -> tuple[InputRecord, ...]:
        """Return inputs under the names that they have in this run."""
        if not self.has_roots:
            return tuple(inputs)
        return tuple(
            msgspec.structs.replace(item, path=files.join(self.mix.root, item.path)) for item in inputs
        )


@dataclass(frozen=True)
class PieceStage:
    """The first pass.

    Attributes
    ----------
    target, folder : str
        Output root, for the quarantine; and where pieces wait.
    member_bytes : int
        See `JsonlWriter`.
    seed : int or None
        Of a shuffle.
    buckets : int
        Of a shuffle.
    policy : RecordPolicy
        What happens to bad records.
    """

    target: str
    folder: str
    member_bytes: int
    seed: int | None
    buckets: int
    policy: RecordPolicy = field(default_factory=RecordPolicy)
    verb: str = "mix"

    def _sink(self, work: PieceWork) -> PieceSink | ScatterSink:
        if self.seed is None:
            return PieceSink(self.folder, work.path, self.member_bytes)
        return ScatterSink(self.folder, work.path, work.name, self.seed, self.buckets)

    def run_shard(self, task: Task) -> list[Record]:
        """Read one shard; see `dolma_dask.engine.Stage`."""
        work: PieceWork = task.work
        quarantine = Quarantine(self.target, self.verb, work.name, self.policy)
        rows = MixedShard(work.mix, self.policy, quarantine)
        sink = self._sink(work)
        _, _, kept = pour(rows, (sink,), quarantine.close)
        state = rows.reader.state
        record = Record(
            unit=task.units[0].name,
            shard=task.shard,
            key=task.units[0].key,
            inputs=work.told(state.inputs),
            files=sink.files,
            rows=int(rows.counts["documents_out"]),
            counts={**rows.counts, "unproved_attribute_files": len(state.unproved)},
            info={
                "text_bytes": sink.text_bytes,
                "unproved": list(state.unproved),
                "quarantine": [[file.path, file.bytes, file.checksum, file.rows] for file in kept],
            },
        )
        return [record]
