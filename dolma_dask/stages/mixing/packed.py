"""A mix whose output files are cut by their size, or whose rows are shuffled: what is finished, what is left, and the files put together.

Files never exceed the size that was asked, as they are stored, unless one document alone does. They are made in passes over pieces
(`dolma_dask.stages.mixing.pieces`), each of which goes on where it was stopped. Since every file depends on all shards, the whole is
finished or not: a record of the whole holds all inputs and outputs, and as long as they are as it says nothing is done.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

import dolma_dask
from dolma_dask import clusters, engine
from dolma_dask.dataset import Shard
from dolma_dask.engine import Plan, RunOptions, Task, Unit, resume
from dolma_dask.errors import UsageError
from dolma_dask.exchange.folders import parent_of, remove_tree
from dolma_dask.exchange.owners import owned
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord, merge_rules
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.stages.marks import note, tidy
from dolma_dask.stages.mixing.cutting import PACKING_VERSION, Packing
from dolma_dask.stages.mixing.outputs import PieceOutput
from dolma_dask.stages.mixing.scatter import SortStage, bucket_count
from dolma_dask.stages.mixing.slices import JoinStage, Slice, cut_by_inputs, fill_files
from dolma_dask.stages.mixing.transform import MixSource, Mixture
from dolma_dask.stages.options import budget
from dolma_dask.stages.sinks import DocumentStage
from dolma_dask.summary import Summary

_PIECES = "pieces"
_SORTED = "sorted"


@dataclass(frozen=True)
class Part:
    """A shard of the input, with what is done to it, and its name in this run."""

    mixture: Mixture
    shard: Shard
    name: str

    @property
    def source(self) -> MixSource:
        """Its documents; if the run reads several datasets, paths are known with their roots."""
        return self.mixture.source(self.shard, self.name)


@dataclass(frozen=True)
class Packed:
    """A call of mix with packed output.

    Attributes
    ----------
    target : str
        Output root.
    name : str
        Of the whole: what it is known under in the journal.
    parts : tuple of Part
        All shards, in order.
    packing : Packing
        How files are cut.
    policy : RecordPolicy
        What happens to bad records.
    key : str
        Digest of all that decides the output besides the bytes of the inputs and the packing.
    told : Mapping
        What was asked, for the journal.
    notes : tuple of str
        What a person should know.
    owns_folder : bool
        Whether everything in the folder of the output files is ours.
    """

    target: str
    name: str
    parts: tuple[Part, ...]
    packing: Packing
    policy: RecordPolicy
    key: str
    told: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    owns_folder: bool = False

    @property
    def unit(self) -> Unit:
        """The whole, known under what was asked."""
        listing = (
            [[part.name, part.shard.bytes] for part in self.parts]
            if self.packing.by_inputs
            else [part.name for part in self.parts]
        )
        return Unit(
            f"{self.packing.prefix}/",
            work_key("mix", PACKING_VERSION, {"key": self.key, **self.packing.params(), "listing": listing}),
        )

    def run(self, options: RunOptions) -> Summary:
        """Do what is left."""
        started = time.monotonic()
        state = resume.look_back(self._plan([]), options.overwrite)
        if not options.dry_run:
            for record in state.restamped:
                note(self.target, "mix", record)
        done = state.finished.get(self.unit.name)
        summary = Summary("mix", self.target, skipped=len(self.parts), notes=self.notes)
        if done is not None:
            if not options.dry_run:
                tidy(self.target, "mix", self._folder)
            return replace(summary, counts=done.counts, rules=done.rules, seconds=time.monotonic() - started)
        self._check_free(state, options.overwrite)
        if options.dry_run:
            return replace(summary, skipped=0, planned=tuple(part.name for part in self.parts))
        with clusters.shared_cluster(), owned(parent_of(self._folder), "mix"):
            whole, ran = self._make(options)
        tidy(self.target, "mix", self._folder)
        return replace(
            ran,
            counts=whole.counts,
            rules=whole.rules,
            notes=(*self.notes, *ran.notes),
            seconds=time.monotonic() - started,
        )

    def _whole_task(self) -> Task:
        return Task(
            self.name, (self.unit,), tuple(item for part in self.parts for item in part.source.inputs)
        )

    def _check_free(self, state: resume.RunState, overwrite: bool) -> None:
        """Refuse to write beside documents that a later stage would read too, or over files that are not ours or made from another dataset."""
        outputs = [path for path in state.existing if self.packing.is_output(path)]
        if overwrite:
            units = frozenset(outputs) if self.owns_folder else None
            resume.check_orphans(replace(self._plan([]), all_units=units), state, overwrite)
            return
        left = [Task(self.name, tuple(Unit(path, "") for path in outputs) or (self.unit,), ())]
        resume.check_replaceable(self._plan([]), replace(state, left=left))
        for path in state.existing:
            is_output = self.packing.is_output(path)
            in_the_way = is_output or (self.owns_folder and path.endswith(layout.DOCUMENT_SUFFIXES))
            if in_the_way and not (is_output and state.journal.may_write(path)):
                raise UsageError(
                    f"{self.target} holds {path!r}, which this run does not make; expected a free place. Choose another name or target, or "
                    "replace what is there with --overwrite."
                )

    def _plan(self, tasks: Sequence[Task], outputs: Sequence[str] | None = None) -> Plan:
        """Return the plan of the last pass; without outputs that of looking back at the whole."""
        folder, _, _ = self.packing.prefix.rpartition("/")
        ours = f"{folder}/" if folder and self.owns_folder else f"{self.packing.prefix}-"
        return Plan(
            stage=JoinStage(self.target, self._folder),
            root=self.target,
            tasks=tasks if outputs is not None else [self._whole_task()],
            params=self.told,
            writes=(ours,),
            version=dolma_dask.__version__,
            origin=self.parts[0].mixture.dataset.root,
            reads=layout.DOCUMENT_SUFFIXES,
            all_units=frozenset(outputs or ()) if self.owns_folder and outputs is not None else None,
        )

    @property
    def _folder(self) -> str:
        """Where pieces wait."""
        name = f"mix-{self.packing.prefix.rpartition('/')[2]}"
        return files.join(self.target, f"_exchange/{name}/{self.unit.key}")

    def _make(self, options: RunOptions) -> tuple[Record, Summary]:
        if options.overwrite:
            remove_tree(self._folder)
        inner = replace(options, overwrite=False)
        read, ran = self._read(inner)
        pieces = read if self.packing.seed is None else self._sort(read, inner)
        limit = self.packing.max_bytes
        groups = (
            cut_by_inputs(pieces, [part.shard.bytes for part in self.parts], limit)
            if self.packing.by_inputs
            else fill_files(pieces, limit)
        )
        checksums = [item.checksum for record in read for item in record.inputs]
        outputs = self._join(
            groups, work_key("mix", PACKING_VERSION, {"whole": self.unit.key, "inputs": checksums}), options
        )
        sorted_again = [] if self.packing.seed is None else pieces
        return self._save(read, outputs, (*read, *sorted_again, *outputs)), ran

    def _read(self, options: RunOptions) -> tuple[list[Record], Summary]:
        """Run the first pass."""
        packing = self.packing
        buckets = (
            bucket_count(sum(part.shard.bytes for part in self.parts)) if packing.seed is not None else 1
        )
        output = PieceOutput(self.target, self._folder, packing.member_bytes, packing.seed, buckets)
        stage = DocumentStage((output,), self.policy, verb="mix")
        suffix = "rows" if packing.seed is not None else packing.file_format
        key = work_key("mix", PACKING_VERSION, {"whole": self.unit.key, "buckets": buckets})
        tasks = []
        for number, part in enumerate(self.parts):
            path = f"{_PIECES}/{number:08d}.{suffix}"
            tasks.append(stage.task(part.source, Unit(path, key)))
        plan = Plan(stage, self._folder, tasks, {}, (f"{_PIECES}/",), max_bad_fraction=budget(self.policy))
        summary = engine.run(plan, options).summary
        return self._records(plan), replace(summary, target=self.target)

    def _records(self, plan: Plan) -> list[Record]:
        """Return the records of the units of a pass that has been run."""
        known = Journal(plan.root, plan.verb).records
        return [known[unit.name] for task in plan.tasks for unit in task.units]

    def _sort(self, read: Sequence[Record], options: RunOptions) -> list[Record]:
        """Run the second pass of a shuffle."""
        buckets = bucket_count(sum(part.shard.bytes for part in self.parts))
        key = work_key(
            "mix", PACKING_VERSION, {"pieces": [file.checksum for record in read for file in record.files]}
        )
        stage = SortStage(self._folder, tuple(record.unit for record in read), self.packing.member_bytes)
        tasks = [
            Task(
                f"bucket {number}",
                (Unit(f"{_SORTED}/{number:08d}.{self.packing.file_format}", key),),
                (),
                number,
            )
            for number in range(buckets)
        ]
        plan = Plan(stage, self._folder, tasks, {}, (f"{_SORTED}/",))
        engine.run(plan, options)
        return self._records(plan)

    def _join(self, slices: Sequence[Sequence[Slice]], key: str, options: RunOptions) -> list[Record]:
        """Run the last pass."""
        names = [self.packing.path(number, len(slices)) for number in range(len(slices))]
        content = [[[one.path, one.start, one.stop] for one in each] for each in slices]
        tasks = [
            Task(
                name,
                (Unit(name, work_key("mix", PACKING_VERSION, {"key": key, "slices": each})),),
                (),
                tuple(of),
            )
            for name, of, each in zip(names, slices, content, strict=True)
        ]
        plan = self._plan(tasks, names)
        self._retire_old(plan)
        engine.run(plan, options)
        return self._records(plan)

    def _retire_old(self, plan: Plan) -> None:
        """Note that the files of the whole are replaced, before they are, and remove those that are not made again."""
        state = resume.look_back(plan, overwrite=True)  # of all that is there
        whole = state.journal.records.get(self.unit.name)
        if whole is not None:
            note(self.target, "mix", msgspec.structs.replace(whole, stale=True))
        for path in state.existing.keys() - {task.shard for task in plan.tasks}:
            if self.packing.is_output(path):
                files.remove(files.join(self.target, path))

    def _save(self, read: Sequence[Record], outputs: Sequence[Record], passes: Sequence[Record]) -> Record:
        """Note that the whole was made, of what, and what it is."""
        counts: dict[str, float] = {}
        for record in read:
            for name, count in record.counts.items():
                counts[name] = counts.get(name, 0) + count
        written = tuple(file for record in outputs for file in record.files)
        counts["bytes_out"] = sum(file.bytes for file in written)
        kept = [FileRecord(*file) for record in read for file in record.info["quarantine"]]
        whole = Record(
            unit=self.unit.name,
            shard=self.name,
            key=self.unit.key,
            inputs=tuple(item for record in read for item in record.inputs),
            files=(*written, *kept),
            rows=int(counts["documents_out"]),
            counts=counts,
            rules=merge_rules(record.rules for record in read),
            info={"unproved": sorted({name for record in read for name in record.info["unproved"]})},
            seconds=sum(record.seconds for record in passes),
            finished=max(record.finished for record in passes),
        )
        note(self.target, "mix", whole)
        return whole
