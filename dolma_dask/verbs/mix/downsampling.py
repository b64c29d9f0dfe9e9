"""The first part of a mix that is downsampled: rank the documents that it would write, and find where each group is cut.

A job of two passes before those of the mix. The first reads what the rule needs (and the texts, where these are weighed) and keeps 26 bytes for
each document that the mix would write; the second finds the cut of each group (`dolma_dask.verbs.mix.ranking`), by what is wanted of it
(`dolma_dask.rules.downsampling`, `dolma_dask.rules.budgets`). The result, a table with a line per group, is a record of the journal below what the mix writes; each of its outputs has a copy among the parameters of its run. Documents weigh
one each, or their bytes, their tokens, or the number of a column.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.engine import (
    Announce,
    Gather,
    Input,
    Pass,
    Passes,
    Plan,
    Ran,
    Task,
    Unit,
    WorkDir,
    grouped,
)
from dolma_dask.errors import SchemaError, UsageError
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.reading.kept.transform import MixSource, Mixture
from dolma_dask.results.summary import Summary
from dolma_dask.rules.budgets import Budget, Wanted
from dolma_dask.rules.downsampling import NO_LABEL, Take
from dolma_dask.rules.groups import ALL, MAX_GROUPS, Groups, too_many
from dolma_dask.rules.sampling import document_hashes
from dolma_dask.sinks.sink import DocumentRows, ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.verbs.mix.drawn import Drawn, DrawnTable
from dolma_dask.verbs.mix.ranking import RANKED, FoundCut, Ints, Ranked, find_cuts

if TYPE_CHECKING:  # most mixes make no tokens, whose modules cost a third of a start
    from dolma_dask.tokens.engine import TokenEngine

VERSION = 1
"""Raised whenever other documents are kept for the same options."""

GROUP_BYTES = 64 << 20
"""Stored bytes of the shards that share a staging file."""

BLOCK = 1 << 16
"""Documents of a staging file that are looked at together."""

REFUSED = "refused"
"""Name of the message about what cannot be had."""

_PLACE_BITS = 32

MAX_WEIGHT = (1 << 31) - 1
"""Largest number of a column: sums of four thousand million documents are exact."""


class Measure(Struct, frozen=True):
    """Weight of documents."""

    unit: str
    column: str | None = None  # with a number per document
    engine: "TokenEngine | None" = None  # that encodes the texts
    added: int = 0  # tokens around each document

    def weigh(self, rows: DocumentRows, shard: str) -> Ints:
        """Return the weight of each document (n,)."""
        if self.column is not None:
            return _whole(rows.batch.column(self.column), self.column, rows, shard) + self.added
        if self.engine is not None:
            lengths = self.engine.encode(rows.batch.column("text")).lengths
            return lengths.astype(np.int64) + self.added
        if self.unit == "bytes":
            lengths = pc.binary_length(rows.batch.column("text")).to_numpy(zero_copy_only=False)
            return np.asarray(lengths, np.int64)
        return np.ones(rows.batch.num_rows, np.int64)

    @property
    def of_text(self) -> bool:
        """True if it depends on the text."""
        return self.unit == "bytes" or self.engine is not None

    def params(self) -> dict[str, Any]:
        """Return what decides the weights."""
        tokenizer = {} if self.engine is None else self.engine.params()
        added = {"added": self.added} if self.added or self.engine is not None else {}
        return {"unit": self.unit, "column": self.column, **tokenizer, **added}


def _whole(column: pa.Array, name: str, rows: DocumentRows, shard: str) -> Ints:
    """Return the numbers of a column; refuse those that count nothing."""
    numbers = np.array(column.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False))
    wrong = ~((numbers >= 0) & (numbers <= MAX_WEIGHT) & (numbers == np.floor(numbers)))
    if wrong.any():
        at = int(wrong.argmax())
        raise SchemaError(
            f"{shard}, row {int(rows.numbers[at])}: {name} is {column[at].as_py()}; expected a whole number from 0 to {MAX_WEIGHT:,} in every document that the "
            "mix keeps. Leave the others out by the rule, or choose another unit.",
            shard=shard,
            row=int(rows.numbers[at]),
        )
    return numbers.astype(np.int64)


# ------------------------------------------------------------------------------------------------ the passes


class RankStage(Struct, frozen=True):
    """The first pass over some shards: the hash, weight, place and group of every document that the mix would write."""

    folder: str  # for the staging files
    by: str | None
    seed: int
    measure: Measure
    policy: RecordPolicy
    verb: str = "mix"

    def run_shard(self, task: Task) -> list[Record]:
        """Rank the documents of a group of shards; see `dolma_dask.engine.Stage`."""
        unit, inputs = task.unit, list[InputRecord]()
        groups = Groups(self.by or "")
        rows = 0
        with publish(files.join(self.folder, unit.name), synced=False) as out:
            for number, source in task.work:
                facts = ShardFacts(source.name)
                for block in source.read(self._columns, self.policy, Quarantine(self.policy), facts):
                    out.write(self._ranked(block, number, source.name, groups))
                    rows += block.batch.num_rows
                inputs += facts.inputs
        written = FileRecord(unit.name, out.bytes, out.checksum)
        return [task.record([written], inputs, rows, info={"labels": groups.labels})]

    @property
    def _columns(self) -> frozenset[str]:
        return frozenset(name for name in ("text", self.by, self.measure.column) if name is not None)

    def _ranked(self, rows: DocumentRows, number: int, shard: str, groups: Groups) -> Ranked:
        batch = rows.batch
        ranked = np.zeros(batch.num_rows, RANKED)
        ranked["hash"] = document_hashes(batch.column("source"), batch.column("id"), self.seed)
        ranked["weight"] = self.measure.weigh(rows, shard)
        ranked["place"] = (number << _PLACE_BITS) + rows.numbers
        ranked["group"] = 0 if self.by is None else groups.codes(batch.column(self.by))
        return ranked


class RankedFile(Struct, frozen=True):
    """A staging file of the first pass."""

    url: str
    bytes: int
    checksum: str
    labels: tuple[str, ...]  # of the codes 1, 2, ...

    def blocks(self, group_of: Mapping[str, int], none: int) -> Iterator[Ranked]:
        """Yield its documents with the numbers that groups have in all files."""
        numbers = np.array([none, *(group_of[label] for label in self.labels)], np.uint16)
        digest, size = xxhash.xxh3_128(), BLOCK * RANKED.itemsize
        with files.open_read(self.url) as handle:
            for at in range(0, self.bytes, size):
                data = bytearray(min(size, self.bytes - at))
                files.read_into(handle, at, memoryview(data), self.url)
                digest.update(data)
                rows = np.frombuffer(data, RANKED)
                rows["group"] = numbers[rows["group"]]
                yield rows
        if digest.hexdigest() != self.checksum:
            raise files.damaged(self.url, f"checksum {digest.hexdigest()}, not {self.checksum}")


class CutStage(Struct, frozen=True):
    """The second pass: the cut of each group."""

    wanted: Wanted
    shards: tuple[str, ...]  # in the order of the dataset
    ranked: tuple[RankedFile, ...]
    verb: str = "mix"

    def run_shard(self, task: Task) -> dict[str, Any]:
        """Return a `DrawnTable` as JSON-able values, or under `REFUSED` why what is wanted cannot be had."""
        wanted = self.wanted
        known = set(self._labels)
        if wanted.by is not None and len(known) > MAX_GROUPS:  # of all files; each has fewer
            return {REFUSED: str(too_many(wanted.by))}
        labels = [ALL] if wanted.by is None else sorted({NO_LABEL, *known})
        takes: dict[str, Take] = {}

        def rests(totals: Sequence[int], documents: Sequence[int]) -> list[int | None]:
            there = zip(labels, totals, documents, strict=True)
            takes.update(
                wanted.takes({label: total for label, total, count in there if count or wanted.by is None})
            )
            return [takes[label].rest if label in takes else None for label in labels]

        try:
            found = find_cuts(lambda: self._blocks(labels), len(labels), rests)
        except UsageError as error:
            return {REFUSED: str(error)}
        cuts = dict(zip(labels, found, strict=True))
        drawn = {label: self._drawn(take, cuts[label]) for label, take in takes.items()}
        max_epochs = wanted.max_epochs if isinstance(wanted, Budget) else None
        return DrawnTable(wanted.unit, wanted.by, wanted.seed, drawn, max_epochs).to_json()

    @property
    def _labels(self) -> Iterator[str]:
        return (label for one in self.ranked for label in one.labels)

    def _blocks(self, labels: Sequence[str]) -> Iterator[Ranked]:
        group_of = {label: number for number, label in enumerate(labels)}
        for one in self.ranked:
            yield from one.blocks(group_of, group_of.get(NO_LABEL, 0))

    def _drawn(self, take: Take, one: FoundCut) -> Drawn:
        if take.is_left_out:
            return Drawn(take.wanted, 0, one.total, 0, one.documents, None)
        cut = None
        if one.cut is not None:
            own, place = one.cut
            row = place & ((1 << _PLACE_BITS) - 1)
            cut = (f"{own:016x}", self.shards[place >> _PLACE_BITS], row)
        kept = take.epochs * one.total + one.kept
        documents = take.epochs * one.documents + one.kept_documents
        return Drawn(take.wanted, kept, one.total, documents, one.documents, cut, take.epochs)


class DrawSummary(Summary, frozen=True):
    """The outcome of the job; the table is None in a rehearsal that does not know it."""

    table: DrawnTable | None = None


class Draw(Struct, frozen=True, dict=True):
    """The job; see `dolma_dask.engine.Job`."""

    root: str  # of what the mix writes
    name: str  # of the dataset, or of token files
    mixture: Mixture  # without cuts
    wanted: Wanted
    measure: Measure
    policy: RecordPolicy

    verb: ClassVar[str] = "downsample"
    writes: ClassVar[Sequence[str]] = ()

    @property
    def record(self) -> str:
        """Unit of the record that holds the table."""
        return f"{self.name} drawn"

    @cached_property
    def _sources(self) -> tuple[MixSource, ...]:
        """The documents that the mix would write; their texts are not changed where nobody looks at them."""
        recipe = self.mixture.recipe
        if not (self.measure.of_text or recipe.options.min_text_length):
            recipe = replace(recipe, spans=())
        return replace(self.mixture, recipe=recipe).sources

    @cached_property
    def key(self) -> str:
        """Digest of what was requested."""
        params = {
            "documents": self.mixture.key(self.policy),
            "measure": self.measure.params(),
            "shards": [source.name for source in self._sources],
            **self.wanted.params(),
        }
        return work_key(self.verb, VERSION, params)

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """Files of all shards."""
        return tuple(item for source in self._sources for item in source.inputs)

    def outputs(self, known: Record | None, overwrite: bool) -> Plan | None:
        """Return a plan without work if the table is known."""
        if _table_of(known) is None:
            return None
        return Plan(self._stage(""), self.root, (), {}, (), is_small=True)

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Rank all documents, then find the cuts; what cannot be had is refused, and leaves nothing behind."""
        ran: Ran = yield Pass(self._stage(work.url), self._tasks)
        records = tuple(ran.records.values())
        (table,) = yield Gather(self._cuts(work.url, records), [Task(self.record, (), ())])
        if REFUSED in table:
            work.clear()
            raise UsageError(table[REFUSED])
        yield Announce(self._record(records, table))
        return ran

    def summarize(self, ran: Ran, known: Record | None) -> DrawSummary:
        """Return the summary with the table."""
        return DrawSummary(**asdict(ran.summary), table=_table_of(known))

    def _stage(self, folder: str) -> RankStage:
        verb = "mix" if self.measure.engine is None else "ragged"  # whose cost it has
        return RankStage(folder, self.wanted.by, self.wanted.seed, self.measure, self.policy, verb)

    @property
    def _tasks(self) -> list[Task]:
        tasks: list[Task] = []
        numbered = list(enumerate(self._sources))
        for group in grouped(numbered, _stored_bytes, GROUP_BYTES):
            task = Task.of([source for _, source in group], Unit(f"ranked/{len(tasks):06d}.bin", self.key))
            tasks.append(replace(task, work=tuple(group)))
        return tasks

    def _cuts(self, folder: str, records: Sequence[Record]) -> CutStage:
        ranked = (
            RankedFile(files.join(folder, file.path), file.bytes, file.checksum, tuple(record.info["labels"]))
            for record in records
            for file in record.files
        )
        return CutStage(self.wanted, tuple(source.name for source in self._sources), tuple(ranked))

    def _record(self, records: Sequence[Record], table: dict[str, Any]) -> Record:
        return Record(
            self.record,
            self.record,
            self.key,
            tuple(item for record in records for item in record.inputs),
            rows=sum(record.rows for record in records),
            info=table,
            seconds=sum(record.seconds for record in records),
            finished=max(record.finished for record in records),
        )


def _table_of(known: Record | None) -> DrawnTable | None:
    """Return the table that a record holds; none if it is no record of ours."""
    try:
        return None if known is None else DrawnTable.from_json(known.info)
    except msgspec.ValidationError:
        return None


def _stored_bytes(numbered: tuple[int, MixSource]) -> int:
    return sum(item.info.bytes for item in numbered[1].inputs)
