"""What a page is made of besides journals: one pass over the dataset that was selected from, cut into tasks.

Attribute sets that the rule needs must line up with the documents; any other that does not is left out, and that is said. Memory: a few blocks
per worker, and the sums of at most `MOST_TASKS` tasks.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Task, inputs_of
from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.documents import OPTIONAL
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.io import files
from dolma_dask.io.records import InputRecord
from dolma_dask.reading import AlignedShard, AttributeSets, Catalog, check_clash
from dolma_dask.rules.where import parse
from dolma_dask.verbs.report.origin import Origin
from dolma_dask.verbs.report.survey import Findings, Survey, bounds_of, look_at
from dolma_dask.verbs.selection import conjuncts, select, spelled_conjuncts

MOST_TASKS = 256
"""Results that are held at once, some 2 MB each for 24 signals; where there are more shards, several share a task."""

NUMERIC = ("document", "number", "dict")
"""Kinds of attribute keys that are signals: one number per document."""


@dataclass
class Looked:
    """What was found, and in which files.

    Attributes
    ----------
    found : Findings
        All of it.
    inputs : list of InputRecord
        The files as they were read; those that were left out have no checksum.
    """

    found: Findings = field(default_factory=Findings)
    inputs: list[InputRecord] = field(default_factory=list)

    def add(self, other: "Looked", examples: int) -> None:
        """Take up what was found elsewhere; see `Findings.add`."""
        self.found.add(other.found, examples)
        self.inputs += other.inputs


@dataclass(frozen=True)
class ReportStage:
    """The work of `report` on some shards.

    Attributes
    ----------
    root : str
        Of the dataset that was selected from.
    survey : Survey
        What to look for.
    needed : frozenset of str
        Attribute sets that the rule reads; any other is left out where it does not belong to the documents.
    """

    root: str
    survey: Survey
    needed: frozenset[str] = frozenset()
    verb: str = "report"

    def run_shard(self, task: Task) -> Looked:
        """Look at some shards; see `dolma_dask.engine.gather`."""
        looked = Looked()
        for work in task.work:
            looked.add(self._look(work), self.survey.examples)
        return looked

    def _look(self, work: AlignedShard) -> Looked:
        """Look at one shard; again without a set that does not belong to it, unless the rule needs the set."""
        left_out: dict[str, str] = {}
        while True:
            try:
                looked = self._look_once(work, left_out)
            except DataError as error:
                name = _set_of(error, self.root, work)
                if name is None or name in self.needed or name in left_out:
                    raise
                left_out[name] = str(error)
            else:
                looked.found.left_out = left_out
                return looked

    def _look_once(self, work: AlignedShard, left_out: Collection[str]) -> Looked:
        sources = [source for source in work.sources if source.name not in left_out]
        dropped = {key for source in work.sources if source.name in left_out for key in source.kinds}
        survey = replace(self.survey, keys=tuple(key for key in self.survey.keys if key not in dropped))
        found = Findings()
        rows = replace(work, sources=tuple(sources)).open()
        for block in rows:
            batch = block.batch
            columns = {name: batch.column(name) for name in batch.schema.names if name != "text"}
            seen = look_at(survey, work.shard.path, block.first_row, batch, columns)
            found.add(seen, survey.examples)
        others = [source.info for source in work.sources if source.name in left_out]
        unread = (InputRecord(info.path, info.bytes, info.stamp, "") for info in others)
        return Looked(found, [*rows.state.inputs, *unread])


def _set_of(error: DataError, root: str, work: AlignedShard) -> str | None:
    """Return the attribute set whose file an error is about."""
    named = error.details.get("attributes")
    files_of = {files.join(root, source.info.path): source.name for source in work.sources}
    return named if isinstance(named, str) else files_of.get(str(error.details.get("url")))


def left_out_notes(left_out: Mapping[str, str]) -> tuple[str, ...]:
    """Say which attribute sets are left out, and why."""
    return tuple(f"attribute set {name} is left out: {error}" for name, error in sorted(left_out.items()))


@dataclass(frozen=True)
class View:
    """What is read: shards, attribute sets and those that the rule needs, fields of the metadata that it names, and how the page spells
    its conditions."""

    dataset: Dataset
    sets: AttributeSets | None
    fields: Mapping[str, AttributeKind]
    needed: frozenset[str]
    survey: Survey
    spelled: tuple[str, ...]
    notes: tuple[str, ...]

    def decides(self) -> dict[str, Any]:
        """Return what of it decides what is found in the same files, as JSON-able values."""
        kinds = self.sets.kinds if self.sets else {}
        owners = self.sets.owners if self.sets else {}
        return {
            "source": self.dataset.source,
            "signals": [[key, owners[key], kinds[owners[key]][key]] for key in self.survey.keys],
            "conditions": [part.canonical() for part in self.survey.parts],
            "fields": dict(self.fields),
            "examples": self.survey.examples,
        }

    def stage(self) -> ReportStage:
        """Return what goes to workers."""
        return ReportStage(self.dataset.root, self.survey, self.needed)

    def without(self, names: Collection[str]) -> "View":
        """Return the view without the signals of some sets."""
        owners = self.sets.owners if self.sets else {}
        keys = tuple(key for key in self.survey.keys if owners[key] not in names)
        return replace(self, survey=replace(self.survey, keys=keys))

    def tasks(self) -> list[Task]:
        """Return the work: at most `MOST_TASKS` tasks of equally many shards."""
        works = [self._work(shard) for shard in self.dataset.shards]
        size = -(-len(works) // MOST_TASKS)
        return [self._task(works[start : start + size]) for start in range(0, len(works), size)]

    def _work(self, shard: Shard) -> AlignedShard:
        sources = self.sets.sources(shard, sorted(self.survey.names)) if self.sets else ()
        documents = ("id", "text", "source", *(name for name in OPTIONAL if name in self.survey.names))
        dataset = self.dataset
        return AlignedShard(
            dataset.root, shard, documents, sources, self.fields, dataset.source, digests=True
        )

    def _task(self, works: Sequence[AlignedShard]) -> Task:
        infos = [info for work in works for info in work.files]
        return Task(works[0].shard.path, (), inputs_of(self.dataset.root, infos), tuple(works))


def make_view(origin: Origin, chosen: Dataset, examples: int) -> View:
    """Find out what is read of the dataset that was selected from.

    Parameters
    ----------
    origin : Origin
        With the rule.
    chosen : Dataset
        The shards to show.
    examples : int
        Documents to show on each side of a bound.

    Raises
    ------
    UsageError
        There is no such number of examples, or the rule names what is not there any more.
    MissingAttributesError
        A shard lacks an attribute file that the rule needs.
    """
    if examples < 0:
        raise UsageError(
            f"examples is {examples}; expected how many documents to show on each side of a bound."
        )
    written = parse(origin.where) if origin.where else None
    selection = select(chosen, written, origin.attributes if written is not None else ())
    needed = tuple(selection.sets.files) if selection.sets else ()
    sets, notes = _open_sets(chosen, needed)
    kinds = {key: sets.kinds[name][key] for key, name in sets.owners.items()} if sets else {}
    keys = [key for key, kind in kinds.items() if kind in NUMERIC]
    parts = conjuncts(selection.rule)
    bounds = tuple(bound for bound in bounds_of(parts) if bound.key in keys)
    keys = list(dict.fromkeys([*(bound.key for bound in bounds), *keys]))  # what decides comes first
    spelled = spelled_conjuncts(selection.rule, written)  # with the short names that the user chose
    survey = Survey(tuple(keys), parts, bounds, examples)
    return View(chosen, sets, selection.fields, frozenset(needed), survey, spelled, notes)


def _open_sets(dataset: Dataset, needed: Sequence[str]) -> tuple[AttributeSets | None, tuple[str, ...]]:
    """Open all attribute sets; one that the rule does not need may be unfinished or clash, and is left out then with a note."""
    catalog = Catalog(dataset)
    taken, kinds = list(needed), {name: catalog.kinds(name) for name in needed}
    left_out: dict[str, str] = {}
    for name in dataset.attributes:
        if name in needed:
            continue
        try:
            found = catalog.kinds(name)
            check_clash({**kinds, name: found}, found)
        except (DataError, UsageError) as error:
            left_out[name] = str(error)
        else:
            taken.append(name)
            kinds[name] = found
    return (catalog.open(taken) if taken else None), left_out_notes(left_out)
