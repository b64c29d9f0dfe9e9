"""Exchanges: verbs whose attributes depend on all documents. Each shard is read once, keyed records meet in a reducer, what it says goes back by shard.

A verb declares the records (`Exchange.emitter`), the reducer and the output that takes what came back about each shard; `Exchange` owns tasks, passes,
staging files, keys and the dataset-wide record, `dolma_dask.engine.run_job` resume and leases. `tests/unit/example_exchange.py` is a verb in a page.

The dataset-wide record tells readers which attributes hold: those whose records have the key in its ``info["key"]``. It is announced before the first
attribute is written, so that after a kill no old one counts beside new ones. Several datasets of one call are a job each, of which the first does the work of all
(`dolma_dask.engine.run_jobs` with ``as_one``), with shards numbered on from dataset to dataset; the records of all name the same call and each other, so that
readers of one see that another has changed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import (
    Announce,
    Input,
    Passes,
    Plan,
    Ran,
    Step,
    Task,
    Unit,
    WorkDir,
    attribute_plan,
    grouped,
)
from dolma_dask.engine.map import Map, Source
from dolma_dask.errors import UsageError
from dolma_dask.exchange.contract import Emitter, Reducer
from dolma_dask.exchange.flag_rows import ShardKeys, StagedShard, staged_shards
from dolma_dask.exchange.flagging import dataset_unit
from dolma_dask.exchange.flags import StagedSource
from dolma_dask.exchange.passes import Exchanged, Shuffle, exchange
from dolma_dask.exchange.staged import ShardRecords
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.options.base import without_empty
from dolma_dask.reading.columns import Columns
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.sink import Output

GROUP_BYTES = 32_000_000
"""Stored bytes of small shards that are read by one task."""

GROUP_SHARDS = 256
"""Shards that are read by one task at most: opening one costs as much as reading 100 kB or more, on a store far more."""


def _check_whole(job: "Exchange") -> None:
    given, every = len(job.selected.shards), len(job.dataset.shards)
    if given < every:
        raise UsageError(
            f"{job.root}: {job.verb} was given {given:,} of {every:,} shards; expected all, since each attribute depends on the documents of all shards. Leave out "
            "--only, --share and --prune, or make a dataset of some shards: dolma-dask mix ... --only."
        )


class Found(Struct, frozen=True):
    """What was found out about all documents, by dataset of the call."""

    sources: Sequence[Mapping[str, StagedSource]]  # by shard
    infos: Sequence[Mapping[str, Any]]  # of the reducer, for each range of keys
    records: ShardRecords
    seconds: float = 0.0  # that reading has taken, where no record says so
    files: tuple[FileRecord, ...] = ()  # of all datasets, below the root of the first
    info: Mapping[str, Any] = {}  # for readers of the dataset-wide records

    @property
    def read(self) -> list[list[InputRecord]]:
        """Files that were read of each dataset, in the order of their paths."""
        inputs = (
            [item for one in held.values() for item in one.staged.record.inputs] for held in self.sources
        )
        return [sorted(items, key=lambda item: item.path) for items in inputs]


@dataclass(frozen=True, kw_only=True)
class Exchange(ABC):
    """A job that writes an attribute set of what an exchange says of all documents; see `dolma_dask.engine.Job`."""

    dataset: Dataset  # all shards
    selected: Dataset  # those whose attributes are written
    columns: Columns  # to read, `dolma_dask.exchange.flag_rows.COLUMNS` first
    name: str  # of the attribute set
    policy: RecordPolicy
    file_format: FileFormat | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    shuffle: Shuffle = "files"
    call: tuple[Self, ...] = ()  # the datasets that are compared with each other; empty: this one alone
    number: int = 0  # of this dataset among them

    verb: ClassVar[str]
    version: ClassVar[int]  # raised whenever other attributes are written for the same documents
    depends_on: ClassVar[str] = "documents"  # of all shards, besides the own one
    source: ClassVar[type[StagedSource]] = StagedSource  # of a shard that was read

    # what a verb declares

    @property
    def requested(self) -> Mapping[str, Any]:
        """Everything that decides the attributes of this dataset but the bytes of its inputs."""
        return {**self.columns.params(), "name": self.name, "max_record_bytes": self.policy.max_record_bytes}

    @abstractmethod
    def find(self, work: WorkDir) -> Generator[Step, Any, Found]:
        """Return what is found out about all documents: what `exchanged` tells, unless it takes more passes."""

    @abstractmethod
    def output(self, infos: Sequence[Mapping[str, Any]] = ()) -> Output[Any]:
        """Return the output that takes the rows of a shard with what came back about them; `infos` are of the reducer, once they are known."""

    @property
    def reserved(self) -> int:
        """Numbers of shards in the exchange before those of the first dataset."""
        return 0

    # where attributes lie, and what they are made of

    @property
    def root(self) -> str:
        """Root of the dataset."""
        return self.dataset.root

    @property
    def writes(self) -> Sequence[str]:
        """See `dolma_dask.engine.Job`."""
        return ()

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files of all shards."""
        return self.inputs_of(self.dataset.shards)

    @property
    def listing(self) -> list[str]:
        """Paths of all inputs."""
        return [item.info.path for item in self.inputs]

    def inputs_of(self, shards: Iterable[Shard]) -> tuple[Input, ...]:
        """Return the files that are read for the attributes of some shards."""
        return tuple(item for shard in shards for item in self.columns.work(shard).inputs)

    def path(self, shard: Shard) -> str:
        """Return where the attributes of a shard go."""
        return layout.attribute_path(self.name, shard.path, self.file_format)

    def plan(self, output: Output[Any], key: str, sources: Mapping[str, Source[Any]]) -> Plan:
        """Return the plan that writes the attributes of the selected shards under a key, from a source for each that is known already."""
        stage: Map[Any] = Map((output,), self.policy, self.verb)
        tasks = [self._task(stage, shard, key, sources.get(shard.path)) for shard in self.selected.shards]
        every = [self.path(shard) for shard in self.dataset.shards]
        return attribute_plan(stage, self.dataset, (self.name,), tasks, every, self.params, is_whole=True)

    def _task(self, stage: Map[Any], shard: Shard, key: str, source: Source[Any] | None) -> Task:
        unit = Unit(self.path(shard), key)
        return stage.task(source, unit) if source else Task(shard.path, (unit,), self.inputs_of([shard]))

    # the datasets of a call

    @property
    def parts(self) -> tuple[Self, ...]:
        """The datasets of the call one by one."""
        return self.call or (self,)

    def numbered(self) -> Iterator[tuple[Self, int]]:
        """Yield each dataset with the number of its first shard in the exchange."""
        counts = [len(part.dataset.shards) for part in self.parts]
        return zip(self.parts, accumulate(counts[:-1], initial=self.reserved), strict=True)

    @property
    def shard_count(self) -> int:
        """Shards of the exchange."""
        return self.reserved + sum(len(part.dataset.shards) for part in self.parts)

    def tasks_of(self, make: Callable[[Self, int], Sequence[Task]]) -> list[Task]:
        """Return the tasks that are made for each dataset and the number of its first shard, under names that differ."""
        made = [make(part, first) for part, first in self.numbered()]
        if len(made) == 1:
            return list(made[0])
        return [
            replace(task, shard=f"{number}/{task.shard}") for number, of in enumerate(made) for task in of
        ]

    # keys and records

    @property
    def record(self) -> str | None:
        """Unit of the dataset-wide record."""
        return dataset_unit(self.name)

    @property
    def described(self) -> Mapping[str, Any]:
        """Everything that was requested of all datasets of the call."""
        first, *others = self.parts
        listed = [{**part.requested, "listing": part.listing} for part in others]
        return {**first.requested, **without_empty({"others": listed})}

    @property
    def key(self) -> str:
        """Digest of what was requested."""
        return work_key(self.verb, self.version, self.described)

    def found_key(self, found: Found) -> str:
        """Return the key of the attributes of all datasets: it depends on the bytes of all shards."""
        content = []
        for part, inputs in zip(self.parts, found.read, strict=True):
            checksums = {item.path: item.checksum for item in inputs}
            content += [checksums[path] for path in part.listing]
        return work_key(self.verb, self.version, {"set": self.key, "inputs": content})

    def key_in(self, number: int, key: str) -> str:
        """Return the key of the attributes in dataset `number`: of equal datasets that change places neither has those of the other."""
        if len(self.parts) == 1:
            return key
        return work_key(f"{self.verb}-part", self.version, {"flags": key, "number": number})

    def announced(self, number: int, key: str) -> dict[str, Any]:
        """Return what readers of dataset `number` have to know of the attributes of `key`."""
        own = {"key": self.key_in(number, key)}
        if len(self.parts) == 1:
            return own
        root = self.parts[number].root
        datasets = [[files.relative(root, one.root), self.key_in(n, key)] for n, one in enumerate(self.parts)]
        return {**own, "call": key, "datasets": datasets}

    def known_key(self, known: Record) -> str:
        """Return the key of the attributes that hold, by the valid record of this dataset; nothing if those of another one are of another call."""
        call = str(known.info.get("call", known.info.get("key", "")))
        if not self.announced(self.number, call).items() <= known.info.items():
            return ""
        beside = [Journal(part.root, self.verb).records.get(dataset_unit(self.name)) for part in self.call]
        is_one = all(record and record.info.get("call") == call for record in beside)
        return self.key_in(self.number, call) if is_one else ""

    def dataset_record(
        self, unit: Unit, inputs: Sequence[InputRecord] = (), made: Sequence[FileRecord] = (), **info: Any
    ) -> Record:
        """Return a record that says which attributes hold from now on, and what they were made of."""
        described = {"depends_on": self.depends_on, **info}
        shard = self.dataset.shards[0].path
        return Record(unit.name, shard, unit.key, tuple(inputs), tuple(made), info=described)

    # the work

    def outputs(self, known: Record | None, overwrite: bool) -> Plan | None:
        """Return the plan of the attributes, under a key that nothing has if some must be made."""
        return self.plan(self.output(), self.known_key(known) if known else "", {})

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Compare the documents of all datasets, announce which attributes hold, and write them: those of this dataset last."""
        for part in self.parts:
            _check_whole(part)
        found = yield from self.find(work)
        key = self.found_key(found)
        yield from self.announce(key, found)
        first, *others = enumerate(zip(self.parts, found.sources, strict=True))
        for number, (part, sources) in (*others, first):
            ran: Ran = yield part.plan(part.output(found.infos), self.key_in(number, key), sources)
        return ran

    def exchanged(self, work: WorkDir, emitter: Emitter, reducer: Reducer) -> Generator[Step, Any, Found]:
        """Read all shards, and return what the reducer says of their documents.

        The emitter is a `dolma_dask.exchange.flag_rows.StagingEmitter`; the reducer gives out records with locations.
        """
        exchanged: Exchanged = yield from exchange(
            work, emitter, self.tasks(), reducer, shards=self.shard_count, shuffle=self.shuffle
        )
        return self.found_in(work, exchanged)

    def found_in(self, work: WorkDir, exchanged: Exchanged) -> Found:
        """Return what an exchange says of the documents."""
        records = exchanged.by_shard
        assert records is not None, "the reducer gives out records"
        held = [one for record in exchanged.emitted.values() for one in staged_shards(record)]
        staged = {one.number: one for one in held}
        sources = [
            part.sources(staged, first, partial(self.source, folder=work.url, records=records))
            for part, first in self.numbered()
        ]
        seconds = sum(record.seconds for record in exchanged.emitted.values())
        return Found(sources, exchanged.infos, records, seconds)

    def takes_part(self, shard: Shard) -> bool:
        """Tell whether the documents of a shard give records; those of others are kept whatever the reducer says."""
        return True

    def tasks(self) -> list[Task]:
        """Return the tasks that read the selected shards of all datasets, small ones together."""
        return self.tasks_of(lambda part, first: part._reading(first))

    def _reading(self, first: int) -> list[Task]:
        selected = {shard.path for shard in self.selected.shards}
        works = [
            ShardKeys(number, self.columns.work(shard, exact=True), self.takes_part(shard))
            for number, shard in enumerate(self.dataset.shards, first)
            if shard.path in selected
        ]
        groups = grouped(works, lambda work: work.work.shard.bytes, GROUP_BYTES, GROUP_SHARDS)
        return [Task.of(group) for group in groups]

    def sources(
        self, staged: Mapping[int, StagedShard], first: int, source: Callable[..., StagedSource]
    ) -> dict[str, StagedSource]:
        """Return a source for each shard of this dataset, by path: of those that were read, by number."""
        return {
            shard.path: source(staged[number], inputs=self.inputs_of([shard]))
            for number, shard in enumerate(self.dataset.shards, first)
            if number in staged
        }

    def announce(self, key: str, found: Found) -> Generator[Step, Any, None]:
        """Say in all datasets, before the first attribute of any is written, that those of `key` hold from now on."""
        unit = Unit(dataset_unit(self.name), self.key)
        for number, (part, inputs) in enumerate(zip(self.parts, found.read, strict=True)):
            record = part.dataset_record(unit, inputs, **found.info, **self.announced(number, key))
            if number == 0:
                record = replace(record, files=found.files, seconds=found.seconds)
            yield Announce(record, part.root)

    def summarize(self, ran: Ran, known: Record | None) -> Summary:
        """Return the summary of a run."""
        return ran.summary
