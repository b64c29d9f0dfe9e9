"""The job of `dedupe` by equal values: keys of all shards through the exchange, then the flags of every shard.

The flags of a shard depend on all shards, so their key holds the checksums of all inputs, which the dataset-wide record of the last run knows,
or else the exchange. When everything is finished, nothing is started.

Several datasets are several jobs of one run: the first does the work of all, in its own work folder, and each holds the lease of its dataset
and tells what was done there. The records of all name the same key and each other, so that readers of one see that another has changed.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar

import msgspec

from dolma_dask.engine import (
    Announce,
    Input,
    Job,
    Passes,
    Plan,
    Ran,
    Step,
    Task,
    Unit,
    WorkDir,
    resume,
    run_jobs,
)
from dolma_dask.engine.map import Source
from dolma_dask.errors import SourceChangedError
from dolma_dask.exchange import Shuffle, exchange
from dolma_dask.exchange.flag_rows import StagedShard
from dolma_dask.exchange.flagging import Flagging, dataset_unit
from dolma_dask.exchange.flags import StagedSource
from dolma_dask.io import files
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record, work_key
from dolma_dask.options.base import without_empty
from dolma_dask.options.groups import RunOptions
from dolma_dask.verbs.dedupe.shards import DuplicateOutput, KeyEmitter, KeyRecipe
from dolma_dask.verbs.dedupe.summary import DedupeSummary, joined, summarize
from dolma_dask.verbs.dedupe.survivors import SurvivorReducer, largest_of

VERSION = 3
"""Raised whenever other documents are flagged, or in another way, for the same input and arguments."""

_DOCUMENT_READS = ("id", "source", "added", "created", "text")


@dataclass
class _Together:
    """Knowledge of the datasets of one call about each other while it runs."""

    key: str = ""  # of the flags that all of them hold
    rans: dict[str, Ran] = field(default_factory=dict)  # by root, of those that are not the first


@dataclass(frozen=True, kw_only=True)
class Deduplication(Flagging, ABC):
    """A call of `dedupe`, with everything that decides its result."""

    shuffle: Shuffle = "files"
    others: tuple["Deduplication", ...] = ()  # of further datasets, whose documents come behind these
    together: _Together = field(default_factory=_Together, compare=False)

    verb = "dedupe"
    depends_on = "documents"
    version: ClassVar[tuple[str, int]]  # of the keys

    @property
    def parts(self) -> tuple["Deduplication", ...]:
        """The datasets of the call one by one."""
        return (self, *self.others)

    @property
    def firsts(self) -> list[int]:
        """Number of the first shard of each dataset, in the listing of all."""
        counts = [len(part.dataset.shards) for part in self.parts]
        return list(accumulate(counts[:-1], initial=0))

    @property
    def shard_count(self) -> int:
        """Shards of all datasets."""
        return sum(len(part.dataset.shards) for part in self.parts)

    @property
    def record(self) -> str:
        """Unit of the dataset-wide record."""
        return dataset_unit(self.name)

    @property
    @abstractmethod
    def requested(self) -> Mapping[str, Any]:
        """Request for this dataset."""

    @property
    def key(self) -> str:
        """Digest of what was requested."""
        others = [{**part.requested, "listing": part.listing} for part in self.others]
        return work_key(*self.version, {**self.requested, **without_empty({"others": others})})

    @property
    def listing(self) -> list[str]:
        """Paths of all inputs of this dataset."""
        return [item.info.path for item in self.inputs]

    @property
    @abstractmethod
    def output(self) -> DuplicateOutput:
        """Flags to write, as far as they are known before the first pass."""

    @abstractmethod
    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Find the duplicates of all datasets, announce which flags hold, and write them."""

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        """Return the plan of the flags, under a key that nothing has if some must be made."""
        self.together.key = self.known_key(known) if known else ""
        return self.plan(self.output, self.key_in(0, self.together.key), {})

    def known_key(self, known: Record) -> str:
        """Return the key of the flags in all datasets; nothing if some are not there. `known` is the valid record of the first."""
        records = [known, *(part.valid_record(self.key) for part in self.others)]
        held = [record for record in records if record is not None]
        key = self.key_of(held) if len(held) == len(records) else ""
        if any(not self.told(n, key).items() <= record.info.items() for n, record in enumerate(held)):
            return ""
        plans = (part.plan(part.output, self.key_in(n, key), {}) for n, part in enumerate(self.others, 1))
        return "" if any(resume.look_back(plan, False).left for plan in plans) else key

    def key_in(self, number: int, key: str) -> str:
        """Return the key of the flags in dataset `number`: of equal datasets that change places neither has the flags of the other."""
        return (
            work_key("dedupe-part", VERSION, {"flags": key, "number": number}) if self.others and key else key
        )

    def told(self, number: int, key: str) -> dict[str, Any]:
        """Return what readers of dataset `number` have to know of the flags of `key`."""
        root = self.parts[number].root
        datasets = [[files.relative(root, one.root), self.key_in(n, key)] for n, one in enumerate(self.parts)]
        return {
            "key": self.key_in(number, key),
            **({"call": key, "datasets": datasets} if self.others else {}),
        }

    def valid_record(self, key: str) -> Record | None:
        """Return the dataset-wide record under a key, if all inputs are as it says."""
        task = Task(self.name, (Unit(self.record, key),), self.inputs)
        return resume.look_back_at(self.root, self.verb, [task]).finished.get(self.record)

    def key_of(self, records: Sequence[Record]) -> str:
        """Return the key of flags that were made of the inputs of these records, one per dataset."""
        return self.flags_key([record.inputs for record in records])

    def summarize(self, ran: Ran, known: Record | None) -> DedupeSummary:
        """Return the summary, with the tables that the records of all shards make."""
        listing = {shard.path: number for number, shard in enumerate(self.dataset.shards)}
        return summarize(ran.summary, tuple(ran.records.values()), listing)

    def flags_key(self, read: Sequence[Iterable[InputRecord]]) -> str:
        """Return the key of every shard's flags, from what was read of each dataset: it depends on the bytes of all shards."""
        content = []
        for part, inputs in zip(self.parts, read, strict=True):
            checksums = {item.path: item.checksum for item in inputs}
            content += [checksums[path] for path in part.listing]
        return work_key("dedupe", VERSION, {"set": self.key, "inputs": content})

    def announce(
        self,
        key: str,
        read: Sequence[Sequence[InputRecord]],
        kept: Sequence[FileRecord] = (),
        *,
        seconds: float = 0.0,
        **described: Any,
    ) -> Generator[Step, Any, None]:
        """Say in all datasets, before the first flag of any is written, that the flags of `key` hold from now on.

        `kept` and `seconds` are of the first.
        """
        for number, (part, inputs) in enumerate(zip(self.parts, read, strict=True)):
            told = self.told(number, key)
            info = {**described, **told}
            record = part.dataset_record(Unit(part.record, self.key), told["key"], inputs, info=info)
            if part is self:
                record = msgspec.structs.replace(record, files=tuple(kept), seconds=seconds)
            yield Announce(record, part.root)

    def flags(
        self,
        infos: Iterable[Mapping[str, Any]],
        key: str,
        sources: Sequence[Mapping[str, Source[Any]]],
    ) -> Passes:
        """Write the flags of all datasets, those of the first last; `sources` are by shard, one mapping per dataset."""
        largest = largest_of(cluster for info in infos for cluster in info["largest"])
        output = replace(self.output, largest=largest)
        for number, (part, found) in enumerate(zip(self.others, sources[1:], strict=True), 1):
            own = replace(output, root=part.root)
            self.together.rans[part.root] = yield part.plan(own, self.key_in(number, key), found)
        ran: Ran = yield self.plan(output, self.key_in(0, key), sources[0])
        return ran

    def named(self, number: int, task: Task) -> Task:
        """Return a task that reads shards of dataset `number` under a name that no task of the others has."""
        return replace(task, shard=f"{number}/{task.shard}") if self.others else task


@dataclass(frozen=True)
class Beside:
    """A further dataset of a call as a job of its own, whose passes are those of the first; see `dolma_dask.engine.Job`."""

    first: Deduplication
    number: int  # of the dataset among those of the call
    part: Deduplication
    root: str
    name: str
    key: str
    inputs: Sequence[Input]
    record: str

    verb: ClassVar[str] = "dedupe"
    writes: ClassVar[Sequence[str]] = ()

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        """Return the plan of the flags, under the key that the first dataset has found just now."""
        first = self.first
        return self.part.plan(self.part.output, first.key_in(self.number, first.together.key), {})

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Tell what the first dataset's passes have done."""
        yield from ()
        ran = self.first.together.rans.get(self.root)
        if ran is None:
            raise SourceChangedError(
                f"{self.root}: flags of {self.name} were removed or changed while dedupe looked at them; expected them to stay. Run the same command again.",
                url=self.root,
            )
        return ran

    def summarize(self, ran: Ran, known: Record | None) -> DedupeSummary:
        """See `Deduplication`."""
        return self.part.summarize(ran, known)


def run_deduplication(job: Deduplication, options: RunOptions) -> DedupeSummary:
    """Do what is left of a call."""
    beside = [
        Beside(job, number, part, part.root, part.name, job.key, part.inputs, part.record)
        for number, part in enumerate(job.others, 1)
    ]
    jobs: list[Job[DedupeSummary]] = [job, *beside]
    return joined(run_jobs(jobs, options))


@dataclass(frozen=True, kw_only=True)
class ExactDeduplication(Deduplication):
    """Documents are duplicates if they are equal in something."""

    recipe: KeyRecipe

    version = "dedupe", VERSION

    @property
    def requested(self) -> Mapping[str, Any]:
        """See `Deduplication`."""
        return {
            **self.columns.params(),
            "column": self.recipe.column,
            **self.recipe.choice.params(),
            "name": self.name,
            "max_record_bytes": self.policy.max_record_bytes,
        }

    @property
    def reads(self) -> tuple[str, ...]:
        """Document columns that the flags depend on; attributes may be made of the text."""
        column, choice = self.recipe.column, self.recipe.choice
        by = ("id", "source") if column == "id" else (column,)
        longest = ("text",) if choice.keep == "longest" else ()
        return document_columns((*by, *longest, *choice.names))

    @property
    def output(self) -> DuplicateOutput:
        """See `Deduplication`."""
        return DuplicateOutput(self.root, self.name, reads=self.reads)

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Exchange the keys of all documents, announce which flags hold, and write them."""
        exchanged = yield from exchange(
            work,
            KeyEmitter(self.policy, self.verb, self.recipe),
            self._readings(),
            SurvivorReducer(),
            shards=self.shard_count,
            shuffle=self.shuffle,
        )
        staged = [part.staged(exchanged, first) for part, first in zip(self.parts, self.firsts, strict=True)]
        read = [inputs_read(held.values()) for held in staged]
        key = self.flags_key(read)
        yield from self.announce(
            key, read, seconds=sum(record.seconds for record in exchanged.emitted.values())
        )
        records = exchanged.by_shard
        assert records is not None
        sources = [
            part.sources(StagedSource, held, work.url, records)
            for part, held in zip(self.parts, staged, strict=True)
        ]
        return (yield from self.flags(exchanged.infos, key, sources))

    def _readings(self) -> list[Task]:
        """Return tasks that read the shards of all datasets."""
        return [
            self.named(number, task)
            for number, (part, first) in enumerate(zip(self.parts, self.firsts, strict=True))
            for task in part.reading(range(len(part.dataset.shards)), first)
        ]


def inputs_read(staged: Iterable[StagedShard]) -> list[InputRecord]:
    """Return the files that were read of some shards, in the order of their paths."""
    return sorted((item for one in staged for item in one.record.inputs), key=lambda item: item.path)


def document_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Return the document columns behind columns: themselves, the metadata, or the text, of which attributes may be made."""
    return tuple(sorted(set(map(_document_column, columns))))


def _document_column(column: str) -> str:
    if column.startswith("metadata"):
        return "metadata"
    return column if column in _DOCUMENT_READS else "text"
