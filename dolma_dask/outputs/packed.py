"""A mix whose output files are cut by their size, or whose rows are shuffled: what is finished, what is left, and the files put together.

Stored files never exceed the requested size, unless one document alone does. They are made in passes over pieces
(`dolma_dask.outputs.pieces`), each of which goes on where it was stopped. Since every file depends on all shards, all are finished or none:
a dataset-wide record holds all inputs and outputs, and as long as these are as it says nothing is done.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Shard
from dolma_dask.engine import (
    Announce,
    Input,
    Pass,
    Passes,
    Plan,
    Ran,
    Stage,
    Step,
    Task,
    Unit,
    WorkDir,
    refusals,
    resume,
)
from dolma_dask.engine.documents import DocumentSource, DocumentStage
from dolma_dask.formats import layout
from dolma_dask.formats.segments import tokens_first
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, merge_rules, sum_counts
from dolma_dask.journal import Record, sum_drops, work_key
from dolma_dask.options.records import budget
from dolma_dask.outputs.cutting import (
    PACKING_VERSION,
    FilePacking,
    JoinStage,
    PieceMember,
    cut_by_inputs,
    fill_files,
    runs_of,
    spread_files,
)
from dolma_dask.outputs.pieces import TEXT_PER_STORED, PieceOutput, SortStage, bucket_count, sorted_units
from dolma_dask.reading.kept.transform import MixSource, Mixture
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.sink import DocumentRows, Output

_PIECES = "pieces"
_SORTED = "sorted"


class Part(Struct, frozen=True, gc=False):
    """A shard of the input, with what is done to it, and its name in this run."""

    mixture: Mixture
    shard: Shard
    name: str

    @property
    def source(self) -> MixSource:
        """Its documents; if the run reads several datasets, paths are known with their roots."""
        return self.mixture.source(self.shard, self.name)

    @property
    def bytes(self) -> int:
        """Stored bytes of the documents."""
        return self.shard.bytes


class PackedPart(Protocol):
    """Documents of one shard that are packed."""

    @property
    def name(self) -> str: ...  # in this run
    @property
    def source(self) -> DocumentSource: ...
    @property
    def bytes(self) -> int: ...  # stored


class Packing(Protocol):
    """Rule by which output files are cut and named."""

    @property
    def prefix(self) -> str: ...  # of their paths, with the folder and the name
    @property
    def max_bytes(self) -> int: ...
    @property
    def seed(self) -> int | None: ...  # of a shuffle; None: in the order of shards and rows
    @property
    def count(self) -> int | None: ...  # of files of about the same size, in place of `max_bytes`
    @property
    def by_inputs(self) -> bool: ...  # files are cut by the stored sizes of the inputs
    @property
    def piece_format(self) -> str: ...  # suffix of pieces
    @property
    def reads(self) -> tuple[str, ...]: ...  # suffixes of files that later stages take for outputs
    def path(self, number: int, count: int) -> str: ...
    def with_others(
        self, path: str
    ) -> tuple[str, ...]: ...  # an output file, and those that appear before it
    def is_output(self, path: str) -> bool: ...
    def params(self) -> dict[str, Any]: ...


class Packed(Struct, frozen=True, dict=True):
    """Documents that become files by their size, or in a random order; see `dolma_dask.engine.Job`.

    What the files hold is said by `PackedDocuments`, and by `dolma_dask.outputs.packed_tokens`.
    """

    root: str
    parts: tuple[PackedPart, ...]  # all shards, in order
    packing: Packing  # how files are cut
    policy: RecordPolicy
    params: Mapping[str, Any]
    notes: tuple[str, ...]
    is_narrowed: bool  # options leave shards out
    owns_folder: bool  # everything in the folder of the output files is ours
    quarantine: str  # folder of bad records below `_quarantine`

    verb: ClassVar[str]
    version: ClassVar[int]  # raised whenever the files get other bytes for the same documents and options

    @property
    def request(self) -> str:
        """Digest of what decides the documents and their bytes, but for the cut."""
        raise NotImplementedError

    @property
    def origin(self) -> str:
        """Root of what is read, the first of several."""
        raise NotImplementedError

    def piece_output(self, work: WorkDir) -> Output[DocumentRows]:
        """Return what makes a piece of each shard in a work folder."""
        raise NotImplementedError

    def sorting(self, work: WorkDir, pieces: tuple[tuple[str, str], ...]) -> SortStage:
        """Return the stage that sorts buckets of scattered pieces: paths, and checksums of their indexes."""
        raise NotImplementedError

    def joining(self, folder: str) -> Stage:
        """Return the stage that makes an output file of members of the pieces in a folder."""
        raise NotImplementedError

    def groups(self, pieces: Sequence[Record]) -> list[list[PieceMember]]:
        """Return what each output file is put together from."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Name of the output files, without their numbers, as that of a folder; in the journal it is that of the shard."""
        return self.packing.prefix.removeprefix(f"{layout.DOCUMENTS}/").replace("/", "+")

    @property
    def record(self) -> str:
        """Unit of the dataset-wide record."""
        return f"{self.packing.prefix}/"

    @property
    def writes(self) -> tuple[str, ...]:
        """Prefix of the output files."""
        folder, _, _ = self.packing.prefix.rpartition("/")
        return (f"{folder}/" if folder and self.owns_folder else f"{self.packing.prefix}-",)

    @cached_property
    def key(self) -> str:
        """Digest of what was requested."""
        names = [part.name for part in self.parts]
        depends_on_sizes = self.packing.by_inputs or self.packing.count is not None
        listing = [list(one) for one in zip(names, self.sizes, strict=True)] if depends_on_sizes else names
        return self._digest({"key": self.request, **self.packing.params(), "listing": listing})

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """Files of all shards."""
        return tuple(item for part in self.parts for item in part.source.inputs)

    def outputs(self, known: Record | None, overwrite: bool) -> Plan:
        """Return the plan of the dataset-wide record, which names all files."""
        if known is None:
            self._check_free(overwrite)
        return self._plan()

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Read all shards into pieces, sort them for a shuffle, and join them to files of one size."""
        read: Ran = yield self._read(work)
        records = list(read.records.values())
        pieces, made = records, list(records)
        if self.packing.seed is not None:
            pieces = list((yield self._sort(work, records)).records.values())
            made += pieces
        groups = self.groups(pieces)
        checksums = [item.checksum for record in records for item in record.inputs]
        plan = self._join(work, groups, self._digest({"whole": self.key, "inputs": checksums}))
        yield from self._retire(plan)
        outputs = list((yield plan).records.values())
        yield Announce(self._dataset_record(records, outputs, made + outputs))
        return read

    def summarize(self, ran: Ran, known: Record | None) -> Summary:
        """Return the summary, which counts the shards that were read."""
        summary = ran.summary
        if known is None:
            planned = tuple(part.name for part in self.parts)
            return Summary(self.verb, self.root, planned=planned, notes=self.notes)
        skipped = summary.skipped if summary.done else len(self.parts)
        return replace(
            summary, verb=self.verb, target=self.root, skipped=skipped, counts=known.counts, rules=known.rules
        )

    def _check_free(self, overwrite: bool) -> None:
        """Refuse to write beside documents that a later stage would read too, or over files that are not ours or made from another dataset."""
        state = resume.look_back(self._plan(), overwrite)
        outputs = [path for path in state.existing if self.packing.is_output(path)]
        if not overwrite:
            units_left = tuple(Unit(path, "") for path in outputs) or (Unit(self.record, self.key),)
            left = [Task(self.name, units_left, ())]
            refusals.check_replaceable(self._plan(), replace(state, left=left))
            record = state.journal.records.get(self.record)
            refusals.check_inputs(self.root, record, self.origin, self.inputs, self.is_narrowed)
        # files named as ours that no run of ours can have left would be removed with these
        made = outputs if state.journal.may_lack_records else state.journal.by_file().keys() & set(outputs)
        named_so = "" if self.owns_folder else rf"{re.escape(self.packing.prefix)}-\d+\."
        plan = replace(self._plan(), all_units=frozenset(made), own_names=named_so)
        refusals.check_orphans(plan, state, resume.surplus(plan, state), overwrite)

    def _plan(self, tasks: Sequence[Task] | None = None, folder: str = "") -> Plan:
        """Return the plan of the last pass; without tasks that of looking back at the dataset-wide record."""
        every = None if tasks is None else frozenset(task.shard for task in tasks)
        return Plan(
            stage=self.joining(folder),
            root=self.root,
            tasks=[Task(self.name, (Unit(self.record, self.key),), self.inputs)] if tasks is None else tasks,
            params=self.params,
            writes=self.writes,
            origin=self.origin,
            reads=self.packing.reads,
            all_units=every if self.owns_folder else None,
            max_bad_fraction=budget(self.policy),
            notes=self.notes if tasks is None else (),
        )

    def _digest(self, params: Mapping[str, Any]) -> str:
        return work_key(self.verb, self.version, params)

    @property
    def sizes(self) -> list[int]:
        """Stored bytes of all shards."""
        return [part.bytes for part in self.parts]

    @property
    def buckets(self) -> int:
        """Buckets of the rows of a shuffle; 1 without one."""
        return 1 if self.packing.seed is None else bucket_count(int(sum(self.sizes) * self.growth))

    @property
    def growth(self) -> float:
        """Times that the documents are written, if that is more than once."""
        return 1.0

    def _read(self, work: WorkDir) -> Pass:
        stage = DocumentStage((self.piece_output(work),), self.policy, verb=self.verb)
        suffix = self.packing.piece_format if self.packing.seed is None else "rows"
        key = self._digest({"whole": self.key, "buckets": self.buckets})
        tasks = [
            stage.task(part.source, Unit(f"{_PIECES}/{number:08d}.{suffix}", key))
            for number, part in enumerate(self.parts)
        ]
        return Pass(
            stage,
            tasks,
            max_bad_fraction=budget(self.policy),
            quarantine=self.quarantine,
            notes=self.notes,
        )

    def _sort(self, work: WorkDir, read: Sequence[Record]) -> Pass:
        key = self._digest({"pieces": [file.checksum for record in read for file in record.files]})
        pieces = tuple((piece.path, index.checksum) for piece, index in (record.files for record in read))
        stage = self.sorting(work, pieces)
        groups = sorted_units(_SORTED, self.packing.piece_format, self.buckets, key)
        share = sum(file.bytes for record in read for file in record.files) // len(groups)
        tasks = [
            Task(f"buckets, group {number}", units, (), staged_bytes=share)
            for number, units in enumerate(groups)
        ]
        return Pass(stage, tasks, reads=read)

    def _join(self, work: WorkDir, groups: Sequence[Sequence[PieceMember]], key: str) -> Plan:
        tasks = []
        for number, members in enumerate(groups):
            name = self.packing.path(number, len(groups))
            content = [[run[0].path, run[0].start, run[-1].stop] for run in runs_of(members)]
            unit = Unit(name, self._digest({"key": key, "slices": content}))
            stored = sum(member.stop - member.start for member in members)
            tasks.append(Task(name, (unit,), (), tuple(members), stored))
        return self._plan(tasks, work.url)

    def _retire(self, plan: Plan) -> Generator[Step, Any, None]:
        """Mark the dataset-wide record stale before its files are replaced, and remove those that are not made again."""
        state = resume.look_back(plan, overwrite=True)  # of all that is there
        record = state.journal.records.get(self.record)
        if record is not None:
            yield Announce(replace(record, stale=True))
        others = state.existing.keys() - {
            path for task in plan.tasks for path in self.packing.with_others(task.shard)
        }
        for path in sorted(others, key=tokens_first):
            if self.packing.is_output(path):
                files.remove(files.join(self.root, path))

    def _dataset_record(
        self, read: Sequence[Record], outputs: Sequence[Record], made: Sequence[Record]
    ) -> Record:
        """Return the record of all files, and of what they were made."""
        counts = sum_counts(record.counts for record in read)
        written = tuple(file for record in outputs for file in record.files)
        counts["bytes_out"] = sum(file.bytes for file in written)
        drops = sum_drops(read)
        kept = [FileRecord(*file) for record in read for file in record.info["quarantine"]]
        return Record(
            unit=self.record,
            shard=self.name,
            key=self.key,
            inputs=tuple(item for record in read for item in record.inputs),
            files=(*written, *kept),
            rows=int(counts["documents_out"]),
            counts=counts,
            rules=merge_rules(record.rules for record in read),
            drops=drops.to_json() if drops else None,
            info={"unproved": sorted({name for record in read for name in record.info["unproved"]})},
            seconds=sum(record.seconds for record in made),
            finished=max(record.finished for record in made),
        )


class PackedDocuments(Packed, frozen=True, dict=True):
    """Documents of a mix in files by their size, or in a random order."""

    parts: tuple[Part, ...]
    packing: FilePacking

    verb = "mix"
    version = PACKING_VERSION

    @property
    def request(self) -> str:
        """See `Packed`."""
        mixtures = {id(part.mixture): part.mixture for part in self.parts}.values()
        return ",".join(mixture.key(self.policy) for mixture in mixtures)

    @property
    def origin(self) -> str:
        """See `Packed`."""
        return self.parts[0].mixture.dataset.root

    @property
    def _member_bytes(self) -> int:
        """Text of a member of a piece."""
        return self.packing.member_bytes(int(sum(self.sizes) * TEXT_PER_STORED * self._share))

    @property
    def _share(self) -> float:
        """Share of the documents that is written; above 1 where they are taken several times."""
        cuts = {id(part.mixture): part.mixture.recipe.cuts for part in self.parts}.values()
        return max((1.0 if own is None else own.share for own in cuts), default=1.0)

    @property
    def growth(self) -> float:
        """See `Packed`."""
        return max(self._share, 1.0)

    def piece_output(self, work: WorkDir) -> PieceOutput:
        """See `Packed`."""
        place = (self.root, work.url, self._member_bytes)
        return PieceOutput(*place, self.packing.seed, self.buckets, self.quarantine)

    def sorting(self, work: WorkDir, pieces: tuple[tuple[str, str], ...]) -> SortStage:
        """See `Packed`."""
        return SortStage(work.url, pieces, self._member_bytes)

    def joining(self, folder: str) -> JoinStage:
        """See `Packed`."""
        return JoinStage(self.root, folder)

    def groups(self, pieces: Sequence[Record]) -> list[list[PieceMember]]:
        """See `Packed`."""
        limit = self.packing.max_bytes
        if self.packing.by_inputs:
            return cut_by_inputs(pieces, self.sizes, limit)
        if self.packing.count is not None:
            return spread_files(pieces, self.packing.count)
        return fill_files(pieces, limit)
