"""Choices among documents that are compared by similarity: a pass of its own beside the signatures, which hold for any choice and are made once.

It leaves a file per shard in the work folder with a row per document: whether it takes part, the hash of its group, its rank. Documents are opened only where
attributes do not tell everything.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.engine import Input, Task, Unit
from dolma_dask.errors import SourceChangedError
from dolma_dask.exchange.flag_rows import StagedShard
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Record, work_key
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.sinks.base import GroupedTable
from dolma_dask.text.kernels import Bools, Words
from dolma_dask.verbs.dedupe.choice import Choice, Chosen, still_kept
from dolma_dask.verbs.dedupe.fuzzy.signatures import GROUP_ROWS, read_columns, read_readable

VERSION = 1
"""Raised when the files change for the same columns."""

_SCHEMA = pa.schema([("kept", pa.bool_()), ("salt", pa.uint64()), ("rank", pa.uint64())])


class Signed(Struct, frozen=True):
    """Work of `ChoiceStage`."""

    number: int  # of the shard in the listing
    columns: AlignedShard  # that decide
    staged: StagedShard  # the rows that were signed
    takes_part: bool = True  # False: no document does


class ChoiceStage(Struct, frozen=True):
    """Chooses among the documents of one shard; ``task.work`` is its `Signed`. See `dolma_dask.engine.Stage`."""

    folder: str  # of the files
    choice: Choice
    max_record_bytes: int = MAX_RECORD_BYTES
    verb: str = "dedupe-choice"

    def run_shard(self, task: Task) -> list[Record]:
        """Write the file of one shard."""
        work: Signed = task.work
        assert work.staged.staging is not None
        readable = read_readable(files.join(work.columns.root, work.staged.staging.path))
        reader = work.columns.open(max_record_bytes=self.max_record_bytes)
        counts: Counter[str] = Counter()
        first = 0
        with self._file(task.unit.name) as file:
            for block in reader:
                rows = readable[first : first + block.num_rows]
                if len(rows) < block.num_rows:
                    raise written_since(work.columns.url)
                if work.takes_part:
                    chosen = self.choice.of(block.batch, rows, counts)
                else:
                    chosen = Chosen(
                        still_kept(rows, np.zeros_like(rows), "documents_excluded", counts), None, None
                    )
                file.write(_columns(chosen))
                first += block.num_rows
        state = reader.state
        if first < len(readable) or state.inputs[0].checksum != work.staged.record.inputs[0].checksum:
            raise written_since(work.columns.url)
        if work.columns.sources:
            counts["unproved_attribute_files"] = len(state.unproved)
        info = {"unproved": list(state.unproved)} if state.unproved else {}
        return [task.record([file.record], state.inputs, first, counts=dict(counts), info=info)]

    def _file(self, path: str) -> GroupedTable:
        unsynced = partial(publish, synced=False)
        return GroupedTable(
            self.folder, path, _SCHEMA, GROUP_ROWS, unsynced, use_dictionary=["salt"], random=["rank"]
        )


def written_since(url: str) -> SourceChangedError:
    """Return the error that says that documents are no more those that were signed."""
    return SourceChangedError(
        f"{url} was written while dedupe read it: its rows are not those that were signed; expected one file from beginning to end. Run the same "
        "command again when it is finished.",
        url=url,
    )


def _columns(chosen: Chosen) -> list[pa.Array]:
    nothing = np.zeros(len(chosen.kept), np.uint64)
    words = (nothing if column is None else column for column in (chosen.salts, chosen.ranks))
    return [pa.array(chosen.kept), *map(pa.array, words)]


def choice_path(number: int) -> str:
    """Return the file of a shard in the work folder."""
    return f"choice/{number:06d}.parquet"


def choice_task(choice: Choice, work: Signed, inputs: tuple[Input, ...]) -> Task:
    """Return the task that chooses in a shard."""
    unit = Unit(choice_path(work.number), work_key("choice", VERSION, choice.params()))
    return Task(work.columns.shard.path, (unit,), inputs, work)


def chosen_rows(folder: str, file: FileRecord) -> Iterator[tuple[Bools, Words]]:
    """Yield which of neighbouring rows take part (n,), and the hashes of their groups (n,), in groups of rows as signatures have them."""
    for batch in read_columns(files.join(folder, file.path), ["kept", "salt"]):
        yield np.array(batch.column(0)), np.array(batch.column(1))


def read_ranks(folder: str, file: FileRecord) -> Words:
    """Return the ranks of all rows (n,)."""
    batches = read_columns(files.join(folder, file.path), ["rank"])
    return np.concatenate([np.empty(0, np.uint64), *(np.asarray(batch.column(0)) for batch in batches)])
