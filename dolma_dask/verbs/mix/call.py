"""One call of `mix`, from its options to its outputs: documents, packed or not, and token files.

Cost: that of reading the documents and attributes once; packed and shuffled documents are copied once or twice more as they are stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import dolma_dask
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Job, MapJob, Plan, RunOptions, Unit, remove_abandoned, run_job, run_jobs
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.journal import work_key
from dolma_dask.summary import Summary
from dolma_dask.verbs.mix.cutting import DEFAULT_SIZE, FilePacking
from dolma_dask.verbs.mix.outputs import DocumentOutput
from dolma_dask.verbs.mix.packed import Packed, Part
from dolma_dask.verbs.mix.transform import Mixture
from dolma_dask.verbs.options import ReadArgs, budget, check_format, record_policy, run_options, without_empty
from dolma_dask.verbs.selection import rule_notes
from dolma_dask.verbs.sinks import DocumentStage, join_documents

if TYPE_CHECKING:  # most mixes make no tokens, whose modules cost a third of a start
    from dolma_dask.verbs.mix.tokens import TokenOptions

VERSION = 2
"""Raised whenever mix writes other bytes for the same input and rule."""


@dataclass(frozen=True, repr=False)
class MixSummary(Summary):
    """The outcome of a mix; ``others`` holds that of the token files which it made too, by their verbs."""

    others: tuple[tuple[str, Summary], ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table; see `Summary`."""
        rows = super().rows()
        for name, other in self.others:
            own = {
                key: value
                for key, value in other.counts.items()
                if key not in self.counts or key == "bytes_out"
            }
            rows += [
                (name, ""),
                *((f"  {label}", value) for label, value in replace(other, counts=own, rules=()).rows()),
            ]
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        known = super().to_json()
        return known | {name: other.to_json() for name, other in self.others}


@dataclass(frozen=True)
class Goal:
    """Outputs of a mix."""

    target: str | None  # root of the new documents; None: there are none
    file_format: FileFormat | None  # None: that of each input file, and for packed ones jsonl.gz
    name: str  # of packed files
    packing: FilePacking | None  # how files are cut; None: there is one for each input file
    tokens: "TokenOptions | None"  # token files
    shown: Mapping[str, Any]  # the same for people

    def check(self, root: str) -> None:
        """Refuse what would write over the input, or among its documents, and token files that cannot be made."""
        if self.target is not None:
            check_apart(root, self.target)
        if self.tokens is not None:
            self.tokens.check([each for each in (root, self.target) if each is not None])


def make_goal(
    *,
    to: str | None,
    tokens: "TokenOptions | None",
    file_format: FileFormat | None,
    name: str,
    max_size: int | None,
    seed: int | None,
) -> Goal:
    """Check the outputs of a mix; `seed` is that of a shuffle."""
    check_format(file_format)
    is_packed = max_size is not None or seed is not None
    if to is None and tokens is None:
        raise UsageError(
            "mix has nothing to write; expected a root of new documents in `to`, or `ragged` or `hdf5`."
        )
    if to is None and is_packed:
        raise UsageError(
            "shuffle and max_size without `to`; expected a root of new documents, since token files are made from the packed ones."
        )
    target = None if to is None else layout.dataset_root(files.normalize(to))
    if not is_packed:
        return Goal(target, file_format, name, None, tokens, without_empty({"format": file_format}))
    prefix = f"{layout.DOCUMENTS}/{layout.check_name(name, 'name')}"
    packing = FilePacking(
        prefix, file_format or "jsonl.gz", DEFAULT_SIZE if max_size is None else max_size, seed
    )
    shown = {"max_size": max_size, "shuffle": seed is not None or None, "name": name, "format": file_format}
    return Goal(target, file_format, name, packing, tokens, without_empty(shown))


@dataclass(frozen=True)
class MixCall:
    """A mixture of some shards of a dataset, and its outputs."""

    dataset: Dataset  # with all shards
    mixture: Mixture  # of the shards that are mixed
    goal: Goal
    shown: Mapping[str, Any]  # options of the documents, for people
    notes: tuple[str, ...]  # for people

    def run(self, options: ReadArgs) -> MixSummary:
        """Make what is left of all outputs."""
        target, packing = self.goal.target, self.goal.packing
        if target is not None and packing is not None:
            return self._packed(target, packing, options)
        made = self._side_by_side(record_policy(options), run_options(options))
        if target is not None and made.done:
            remove_abandoned(target, "mix")  # by a packed mix that was stopped and is no longer requested
        return made

    @property
    def _name(self) -> str:
        """Name of token files that have no other: that of the dataset, whether or not its documents are written again."""
        return files.normalize(self.dataset.root).rsplit("/", 1)[-1]

    @property
    def _params(self) -> dict[str, Any]:
        """Parameters for the journal of the documents."""
        return {"from": self.dataset.root, **self.shown, **self.goal.shown}

    @property
    def _parts(self) -> tuple[Part, ...]:
        return tuple(Part(self.mixture, shard, shard.path) for shard in self.mixture.dataset.shards)

    def _packed(self, target: str, packing: FilePacking, options: ReadArgs) -> MixSummary:
        """Pack the documents of all shards into files of one size, then make tokens of these."""
        goal, policy = self.goal, record_policy(options)
        key = mix_key(self.mixture, policy)
        packed = Packed(
            target, goal.name, self._parts, packing, policy, key, self._params, self.notes, owns_folder=True
        )
        mixed = summarize(run_job(packed, run_options(options)))
        if mixed.planned or goal.tokens is None:
            return mixed
        return _with_others(mixed, goal.tokens.of_packed(target, self.dataset.source, self._name, options))

    def _side_by_side(self, policy: RecordPolicy, options: RunOptions) -> MixSummary:
        """Make files of every kind for each shard, from one reading."""
        tokens, params = self.goal.tokens, {**self.mixture.params(), "mix": VERSION}
        jobs: dict[str, Job[Summary]] = {}
        if self.goal.target is not None:
            documents = DocumentOutput(self.goal.target, self.goal.file_format)
            shards = self.dataset.shards
            plan = documents_plan(documents, self._parts, policy, self._params, self.notes, shards)
            jobs["mix"] = MapJob(plan)
        if tokens is not None:
            jobs |= tokens.jobs(self.dataset, self.mixture, self._name, params, self.shown, policy)
        first, *others = zip(jobs, run_jobs(list(jobs.values()), options, join_documents), strict=True)
        return _with_others(summarize(replace(first[1], verb="mix"), self.notes), others)


def documents_plan(
    output: DocumentOutput,
    parts: Sequence[Part],
    policy: RecordPolicy,
    params: Mapping[str, Any],
    notes: tuple[str, ...],
    shards: Sequence[Shard] = (),
) -> Plan:
    """Return the plan of one file of documents for each part; `shards` are all of the dataset if the folder is for these alone."""
    paths = [output.path(part.shard) for part in parts]
    every = [output.path(shard) for shard in shards]
    layout.check_no_collision(every or paths)
    stage = DocumentStage((output,), policy, "mix")
    keys = {id(part.mixture): mix_key(part.mixture, policy) for part in parts}
    tasks = [
        stage.task(part.mixture.source(part.shard), Unit(path, keys[id(part.mixture)]))
        for part, path in zip(parts, paths, strict=True)
    ]
    return Plan(
        stage=stage,
        root=output.root,
        tasks=tasks,
        params=params,
        writes=(f"{output.prefix}{layout.DOCUMENTS}/",),
        version=dolma_dask.__version__,
        origin=parts[0].mixture.dataset.root,
        reads=layout.DOCUMENT_SUFFIXES,
        all_units=frozenset(every) or None,
        max_bad_fraction=budget(policy),
        notes=notes,
    )


def mix_key(mixture: Mixture, policy: RecordPolicy) -> str:
    """Return the key of the outputs of a mix."""
    params = {"max_record_bytes": policy.max_record_bytes, "on_bad_record": policy.on_bad_record}
    return work_key("mix", VERSION, {**mixture.params(), **params})


def check_apart(root: str, target: str) -> None:
    """Refuse a target that is the input, or lies among its documents, or holds it among the new ones."""
    ours, theirs = (
        files.resolved(files.join(layout.dataset_root(url), layout.DOCUMENTS)) for url in (root, target)
    )
    if f"{ours}/".startswith(f"{theirs}/") or f"{theirs}/".startswith(f"{ours}/"):
        raise UsageError(
            f"mix to {target} would write over its own input {root}; expected another folder or URL in --to."
        )


def summarize(summary: Summary, notes: tuple[str, ...] = ()) -> MixSummary:
    """Return the summary of a run of mix, with what its counts say of rules and filters."""
    known = {item.name: getattr(summary, item.name) for item in fields(Summary)}
    every = (*summary.notes, *notes, *rule_notes(summary))
    return MixSummary(**known | {"notes": tuple(dict.fromkeys(every))})


def _with_others(mixed: MixSummary, others: Sequence[tuple[str, Summary]]) -> MixSummary:
    """Return the outcome of a mix with that of the token files that it made."""
    notes = (f"{name}: {note}" for name, other in others for note in other.notes if note not in mixed.notes)
    planned = (*mixed.planned, *(path for _, other in others for path in other.planned))
    return replace(
        mixed,
        notes=(*mixed.notes, *notes),
        planned=tuple(dict.fromkeys(planned)),
        lost=mixed.lost or any(other.lost for _, other in others),
        seconds=max(mixed.seconds, *(other.seconds for _, other in others), 0.0),
        others=tuple(others),
    )
