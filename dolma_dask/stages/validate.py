"""validate: every file and every row of a dataset against its contract; problems are its result, not its failure.

One pass over documents and attributes (`validation_shard`) checks each shard, then the identities of all documents, 16 bytes each, meet in
the exchange (`validation_keys`). What was checked is remembered per shard and for the whole, so that the same command reads nothing again
unless files change. The report is the same for any number of workers. Memory: a few blocks per worker.
"""

import json
import posixpath
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Annotated, Any, Literal, Unpack, get_args

import dolma_dask
from dolma_dask import engine
from dolma_dask.clusters import shared_cluster
from dolma_dask.dataset import Dataset, Shard, open_dataset, shard_info
from dolma_dask.display import counted
from dolma_dask.engine import Plan, RunOptions, Task, Unit, resume
from dolma_dask.errors import StageError, UsageError
from dolma_dask.exchange import exchange
from dolma_dask.exchange.folders import remove_exchange
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.stages import validation_keys as keys
from dolma_dask.stages.options import (
    DatasetLike,
    Many,
    RunArgs,
    as_dataset,
    check_choice,
    checked,
    dataset_notes,
    run_options,
    selected,
    words_of,
)
from dolma_dask.stages.validation_keys import (
    ROW_BITS,
    IdentityStage,
    KeyEmitter,
    KeyFile,
    KeyReducer,
    KeyWork,
)
from dolma_dask.stages.validation_listing import Listing, disagreements, list_work, sampled
from dolma_dask.stages.validation_problems import KINDS, SHOWN, Problem, Problems
from dolma_dask.stages.validation_shard import VERSION, ValidateStage
from dolma_dask.stages.validation_summary import FORMAT, Found, ValidateSummary, last_names
from dolma_dask.summary import Summary

Shuffle = Literal["files", "p2p"]

KEPT = 20
"""Problems per kind and shard that a journal keeps, unless more are to be shown."""

KEYS_FOLDER = "_exchange/validate-keys"
"""Identities of the shards that were checked, until they are compared."""

IDS_FOLDER = "_exchange/validate-ids"

REPORT = "report"
"""Unit whose record holds the newest report."""

EARLIER = "earlier:"
"""Begins the names of files of the earlier version in the journal."""


def validate(
    dataset: DatasetLike,
    /,
    *,
    against: str | Dataset | Summary | None = None,
    attributes: Annotated[Sequence[str] | None, Many] = None,
    source: str | None = None,
    version: str | None = None,
    sample: float | None = None,
    seed: int = 0,
    to: str | None = None,
    problems: int = 10,
    max_record_bytes: int = MAX_RECORD_BYTES,
    shuffle: Shuffle = "files",
    **options: Unpack[RunArgs],
) -> ValidateSummary:
    """Check every file and every row: records, unique ids, attributes that line up, spans inside of texts, order between versions.

    Example: dolma-dask validate corpus/wiki/v1 --against corpus/wiki/v0

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it; with `version`, a root that holds sources/<source>/<version>.
    against : str or Dataset, optional
        Earlier version: every (source, id) must stand in it, and rows of files of the same name must keep their order. With `version`
        also the name of another version of the same source.
    attributes : list of str, optional
        Attribute sets to check; by default all.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of the folder, and documents need the field.
    version : str, optional
        Version folder below sources/<source>/.
    sample : float, optional
        Look at this share of the files only, such as 0.01; the report says what was not looked at.
    seed : int, optional
        Draws another sample.
    to : str, optional
        Write the report there too, as JSON.
    problems : int, optional
        Problems of each kind that are shown, the first by file and row; all are counted.
    max_record_bytes : int, optional
        Longer records are bad.
    shuffle : {"files", "p2p"}, optional
        How identities meet: through files in the dataset, or between the workers of a Dask cluster.

    Returns
    -------
    ValidateSummary
        Its exit status is 1 if there is any problem.

    Raises
    ------
    StageError
        Some files could not be checked at all.
    UsageError
        There is no such dataset or attribute set, or an argument is unknown or has a value that it cannot have.

    Notes
    -----
    Kinds of problems:

    unreadable_file       a file is truncated, damaged, or not what its suffix says
    schema                a column or key has another type than it needs, or than in other files
    bad_record            a line is no valid document
    empty_id              an id without characters
    bad_metadata          metadata that is no object
    duplicate_id          a (source, id) that stands earlier in the dataset too
    missing_attributes    a document file without file in an attribute set
    two_attribute_files   a document file with two files in an attribute set
    orphan_attributes     an attribute file without document file
    misaligned            rows of attributes and documents do not belong together
    stale                 attributes were made from other text than the documents have now
    bad_attribute_row     a line is no valid attribute row
    span_outside_text     not 0 <= start <= end <= code points of the text
    not_finite            a score or number that is infinite or none
    not_document_level    several spans where the key has one of the whole text
    journal_mismatch      a file has other bytes than the journal says were written
    not_in_against        a document that the earlier version does not have
    order_changed         rows in another order than in the earlier version

    Attribute sets that no journal proves are named in a note; they are no problem. With `sample`, `only` or `prune` ids are
    compared among the chosen files only, and with `sample` only with the earlier files of their names.
    """
    options = checked(validate, options, RunArgs)
    _check_numbers(problems, max_record_bytes)
    check_choice("shuffle", shuffle, get_args(Shuffle))
    target = None if to is None else _report_url(to, options)
    found = _open(dataset, source, version)
    earlier = None if against is None else _open_against(against, dataset, found, source, version)
    names = _sets(found, attributes)
    chosen = sampled(selected(found, options), sample, seed)
    keep = max(KEPT, problems)
    listing = list_work(found, chosen, names, keep)
    stage = ValidateStage(found.root, found.source, keep, max_record_bytes, KEYS_FOLDER)
    check = Check(stage, found, chosen, earlier, listing, sample is not None, shuffle, run_options(options))
    scope = {
        "files": len(chosen.shards),
        "files_of": len(found.shards),
        "attributes": list(names),
        "against": None if earlier is None else last_names(earlier.root),
        "sample": sample,
        "seed": seed if sample is not None else None,
    }
    summary = check.run(scope, problems)
    if target is not None and not options.get("dry_run"):
        _publish(target, summary)
    return summary


# ------------------------------------------------------------------------------------------------ what is asked


def _check_numbers(problems: int, max_record_bytes: int) -> None:
    for name, value in (("problems", problems), ("max_record_bytes", max_record_bytes)):
        if value < 1:
            raise UsageError(f"{name}={value}; expected a number from 1 on.")


def _open(dataset: DatasetLike, source: str | None, version: str | None) -> Dataset:
    if version is None:
        return as_dataset(dataset, source)
    if not isinstance(dataset, str | PathLike):
        raise UsageError(
            "`version` is of a root with sources/<source>/<version> in it; expected the path or URL of that root."
        )
    return replace(open_dataset(fspath(dataset), source=source, version=version), source=None)


def _open_against(
    against: DatasetLike, dataset: DatasetLike, found: Dataset, source: str | None, version: str | None
) -> Dataset:
    if isinstance(against, str) and version and source and "/" not in against:
        earlier = _open(dataset, source, against)
    else:
        earlier = as_dataset(against, found.source)
    if files.resolved(earlier.root) == files.resolved(found.root):
        raise UsageError(
            f"{found.root} cannot be compared with itself; expected an earlier version in `against`, such as the dataset that it was "
            "mixed from."
        )
    return earlier


def _sets(dataset: Dataset, attributes: Sequence[str] | None) -> tuple[str, ...]:
    if attributes is None:
        return dataset.attributes
    names = tuple(dict.fromkeys(words_of("attributes", attributes, may_be_empty=True)))
    unknown = [name for name in names if name not in dataset.attributes]
    if unknown:
        raise UsageError(
            f"{dataset.root} has no attribute set {unknown[0]!r}; it has: {', '.join(dataset.attributes) or 'none'}."
        )
    return names


def _report_url(to: str, options: RunArgs) -> str:
    """Return the URL of the report; refuse to replace a file that is none."""
    target = files.normalize(to)
    if not target.endswith(".json"):
        raise UsageError(
            f"to is {to!r}; expected the path or URL of a file that ends in .json, such as report.json."
        )
    if not options.get("overwrite") and files.stat(target):
        with files.open_read(target) as handle:
            if f'"format": "{FORMAT}"'.encode() not in handle.read(4096):
                raise UsageError(
                    f"{target} is there and is no report of ours; expected a free place. Choose another name, or replace it with --overwrite."
                )
    return target


def _publish(target: str, summary: ValidateSummary) -> None:
    with publish(target) as out:
        out.write(json.dumps(summary.report(), indent=2, ensure_ascii=False).encode() + b"\n")


# ------------------------------------------------------------------------------------------------ the run


@dataclass(frozen=True)
class Check:
    """One call of `validate`.

    Attributes
    ----------
    stage : ValidateStage
        The work on a shard.
    dataset, chosen : Dataset
        All shards, and those to look at.
    earlier : Dataset or None
        The earlier version.
    listing : Listing
        The files to look at.
    is_sample : bool
        Whether only the earlier files of the same names are read.
    shuffle : Shuffle
        How identities meet.
    options : RunOptions
        How to run.
    """

    stage: ValidateStage
    dataset: Dataset
    chosen: Dataset
    earlier: Dataset | None
    listing: Listing
    is_sample: bool
    shuffle: Shuffle
    options: RunOptions

    def run(self, scope: Mapping[str, Any], show: int) -> ValidateSummary:
        """Check what is left and put the report together."""
        started = time.monotonic()
        plan = self._plan([self.stage.task(work) for work in self.listing.works])
        with shared_cluster():
            try:
                summary = engine.run(plan, self.options)
            except StageError as error:
                raise self._failed(error, plan, scope, show) from error
            if self.options.dry_run:
                notes = (*self._notes(()), *self._scope_notes())
                return ValidateSummary(**_fields(summary), scope=scope).with_notes(notes)
            records = self._records(plan)
            whole = self._compare_ids(records)
        remove_exchange(self.dataset.url(KEYS_FOLDER))
        sweep(self.dataset.url(f"{layout.JOURNAL}/{self.stage.verb}"))
        report = self._summary(summary, records, whole.info["problems"], scope, show)
        self._remember(plan, report.report())
        return replace(report, seconds=time.monotonic() - started)

    def _plan(self, tasks: Sequence[Task]) -> Plan:
        params: dict[str, Any] = {"files": len(self.chosen.shards)}
        return Plan(
            self.stage, self.dataset.root, tasks, params, (), dolma_dask.__version__, bad_is_loss=True
        )

    def _records(self, plan: Plan) -> list[Record]:
        """Return the record of each shard that is checked, in the order of the shards."""
        known = Journal(self.dataset.root, self.stage.verb).records
        units = [unit for task in plan.tasks for unit in task.units]
        return [known[unit.name] for unit in units if unit.name in known and known[unit.name].key == unit.key]

    def _remember(self, plan: Plan, report: dict[str, Any]) -> None:
        """Keep the newest report in the journal, for the page that `report` makes."""
        journal = Journal(self.dataset.root, self.stage.verb)
        known = journal.records.get(REPORT)
        if known is None or known.info != report:
            self._write(plan, journal, [Record(REPORT, REPORT, "", info=report, finished=time.time())])

    def _failed(self, error: StageError, plan: Plan, scope: Mapping[str, Any], show: int) -> StageError:
        """Return the error with a report on the shards that could be checked."""
        failed = {failure.shard for failure in error.failures}
        records = [record for record in self._records(plan) if record.shard not in failed]
        base = error.details.get("summary")
        summary = base if isinstance(base, Summary) else Summary(self.stage.verb, self.dataset.root)
        report = self._summary(summary, records, {}, {**scope, "files": len(records)}, show)
        note = "uniqueness of ids was NOT checked, because some files could not be read"
        return StageError(
            str(error), failures=error.failures, summary=report.with_notes((*report.notes, note))
        )

    def _summary(
        self,
        summary: Summary,
        records: Sequence[Record],
        whole: Mapping[str, Any],
        scope: Mapping[str, Any],
        show: int,
    ) -> ValidateSummary:
        problems = Problems(self.stage.keep)
        for found in (
            self.listing.problems.to_record(),
            *(record.info["problems"] for record in records),
            whole,
        ):
            problems.merge(found)
        paths = {
            (work.shard.path, one.name): one.info.path for work in self.listing.works for one in work.sources
        }
        disagreements(records, paths, problems)
        counts: Counter[str] = Counter()
        for record in records:
            counts.update(record.counts)
        counts.pop("problems", None)
        shown = {
            kind: Found(problems.counts[kind], tuple(problems.first(kind)[:show])) for kind in problems.kinds
        }
        notes = (*self._notes(records), *self._scope_notes())
        fields = {**_fields(summary), "counts": dict(sorted(counts.items())), "notes": notes}
        return ValidateSummary(**fields, found=shown, scope=scope)

    def _notes(self, records: Sequence[Record]) -> Iterator[str]:
        yield from dataset_notes(self.dataset)
        yield from self.listing.notes
        unproved = Counter(name for record in records for name in record.info["unproved"])
        if unproved:
            sets = ", ".join(f"{name} ({counted(count, 'file')})" for name, count in sorted(unproved.items()))
            yield f"unproved attributes, whose rows line up but no journal says from which text they were made: {sets}"

    def _scope_notes(self) -> Iterator[str]:
        """Say loudly what was not looked at."""
        count, total = len(self.chosen.shards), len(self.dataset.shards)
        if count < total:
            yield (
                f"looked at {count:,} of {total:,} files: NOTHING is known of the other {total - count:,}, and ids were compared among the "
                f"{count:,} only"
            )
        if self.earlier is not None and self.is_sample:
            alone = len(
                {layout.stem_of(one.path) for one in self.chosen.shards}
                - _by_stem(self.earlier.shards).keys()
            )
            yield (
                "documents were looked for in the earlier files of the same names only, because of --sample"
                + (f"; those of {counted(alone, 'file')} without such a file NOT at all" if alone else "")
            )

    # -------------------------------------------------------------------------------------------- identities

    def _compare_ids(self, records: Sequence[Record]) -> Record:
        """Return the record of the comparison of all identities; nothing is read if no document file changed."""
        works = list(self._key_works(records))
        inputs = tuple(item for work in works for item in work.inputs())
        is_part = len(self.chosen.shards) < len(self.dataset.shards)
        name = (
            "ids" + (" of a part" if is_part else "") + (" and of an earlier version" if self.earlier else "")
        )
        params = {
            "source": self.stage.source,
            "keep": self.stage.keep,
            "max_record_bytes": self.stage.max_record_bytes,
            "same_names": self.is_sample,
            "earlier_source": self.earlier.source if self.earlier else None,
        }
        task = Task(name, (Unit(name, work_key(f"{self.stage.verb} ids", VERSION, params)),), inputs)
        plan = self._plan([task])
        state = resume.look_back(plan, self.options.overwrite)
        if name in state.finished:
            self._write(plan, state.journal, state.renewed)
            return state.finished[name]
        record = self._exchange(task, works)
        self._write(plan, state.journal, [record])
        return record

    def _write(self, plan: Plan, journal: Journal, records: Iterable[Record]) -> None:
        found = list(records)
        if not found:
            return
        writer = journal.start(plan.params, plan.writes, plan.version)
        try:
            for record in found:
                writer.add(record)
            writer.finish(0)
        finally:
            writer.close()

    def _key_works(self, records: Sequence[Record]) -> Iterator[KeyWork]:
        """Yield what is read: each shard with the earlier file of its name, then what is left of the earlier version."""
        twins = _by_stem(self.earlier.shards) if self.earlier else {}
        used = set()
        for number, (shard, record) in enumerate(zip(self.chosen.shards, records, strict=True)):
            twin = twins.get(layout.stem_of(shard.path))
            ours = self._ours(number, shard, record)
            if twin is None or twin in used:
                yield KeyWork(ours, is_alone=self.is_sample and self.earlier is not None)
            else:
                used.add(twin)
                yield KeyWork(ours, self._theirs(twin))
        for shard in self.earlier.shards if self.earlier and not self.is_sample else ():
            if shard not in used:
                yield KeyWork(None, self._theirs(shard))

    def _ours(self, number: int, shard: Shard, record: Record) -> KeyFile:
        info = shard_info(shard)
        known = next(item for item in record.inputs if item.path == info.path)
        kept = self.dataset.url(self.stage.keys_path(shard.path))
        return KeyFile(
            self.dataset.url(info.path),
            info,
            number,
            self.stage.source,
            self.stage.max_record_bytes,
            kept,
            record.info["keys"],
            known,
        )

    def _theirs(self, shard: Shard) -> KeyFile:
        assert self.earlier is not None
        info = shard_info(shard)
        url, named = self.earlier.url(info.path), replace(info, path=EARLIER + info.path)
        return KeyFile(url, named, 0, self.earlier.source, self.stage.max_record_bytes)

    def _exchange(self, task: Task, works: Sequence[KeyWork]) -> Record:
        unit = task.units[0]
        reducer = KeyReducer(self.stage.keep, self.earlier is not None)
        tasks = [Task(work.name, (unit,), work.inputs(), work) for work in works]
        done = exchange(
            KeyEmitter(),
            tasks,
            reducer,
            folder=self.dataset.url(f"{IDS_FOLDER}/{unit.key}"),
            key=unit.key,
            shards=len(self.chosen.shards),
            options=self.options,
            shuffle=self.shuffle,
            verb=self.stage.verb,
        )
        scattered = [done.records[one.shard] for one in tasks]
        problems = self._told(keys.merge(done.infos, self.stage.keep), works)
        for work, one in zip(works, scattered, strict=True):
            self._add_order(work, one, problems)
        done.remove()
        return Record(
            unit=unit.name,
            shard=unit.name,
            key=unit.key,
            inputs=tuple(item for one in scattered for item in one.inputs),
            finished=time.time(),
            rows=sum(one.rows for one in scattered),
            info={"problems": problems.to_record()},
        )

    def _told(self, found: Mapping[str, Any], works: Sequence[KeyWork]) -> Problems:
        """Return the problems that the reducers found, with the names of the documents: only their rows are read again."""
        problems = Problems(self.stage.keep)
        names = self._identities(keys.places(found), works)
        duplicates = (
            self._problem("duplicate_id", place, f"{names[place]} stands in {self._place(first)} too")
            for place, first in found["first"]
        )
        problems.add_all("duplicate_id", duplicates, found["duplicates"])
        if self.earlier is not None:
            where = (
                f"the files of {self._earlier_name} that were read" if self.is_sample else self._earlier_name
            )
            absent = (
                self._problem("not_in_against", place, f"{names[place]} is not in {where}")
                for place in found["first_unmatched"]
            )
            problems.add_all("not_in_against", absent, found["unmatched"])
        return problems

    @property
    def _earlier_name(self) -> str:
        return posixpath.basename(self.earlier.root) if self.earlier else ""

    def _problem(self, kind: str, place: int, found: str) -> Problem:
        shard = self.chosen.shards[place >> ROW_BITS]
        return Problem(layout.document_path(shard.path), place & _ROW, found, KINDS[kind])

    def _place(self, place: int) -> str:
        shard = self.chosen.shards[place >> ROW_BITS]
        return f"{layout.document_path(shard.path)}, row {place & _ROW:,}"

    def _identities(self, places: Iterable[int], works: Sequence[KeyWork]) -> dict[int, str]:
        rows: dict[int, list[int]] = {}
        for place in set(places):
            rows.setdefault(place >> ROW_BITS, []).append(place & _ROW)
        ours = {work.ours.number: work.ours for work in works if work.ours}
        tasks = [
            Task(ours[number].info.path, (), (ours[number].input(),), (ours[number], found))
            for number, found in sorted(rows.items())
        ]
        results = engine.gather(IdentityStage(), tasks, self.options)
        return {
            (number << ROW_BITS) + row: f"source {source[:SHOWN]!r}, id {identity[:SHOWN]!r}"
            for number, found in zip(sorted(rows), results, strict=True)
            for row, (source, identity) in found.items()
        }

    def _add_order(self, work: KeyWork, record: Record, problems: Problems) -> None:
        order = record.info["order"]
        if order is None or work.ours is None or work.theirs is None:
            return
        count, row, there, last, last_there = order
        earlier = f"{self._earlier_name}/{work.theirs.info.path.removeprefix(EARLIER)}"
        found = (
            f"{counted(count, 'row')} in another order than in {earlier}, first row {row:,} (row {there:,} there) behind row {last:,} "
            f"(row {last_there:,} there)"
        )
        problems.add("order_changed", Problem(work.ours.info.path, row, found, KINDS["order_changed"]))


_ROW = (1 << ROW_BITS) - 1


def _by_stem(shards: Iterable[Shard]) -> dict[str, Shard]:
    found: dict[str, Shard] = {}
    for shard in shards:
        found.setdefault(layout.stem_of(shard.path), shard)
    return found


def _fields(summary: Summary) -> dict[str, Any]:
    """Return the fields of a plain summary."""
    return {name: getattr(summary, name) for name in Summary.__dataclass_fields__}
