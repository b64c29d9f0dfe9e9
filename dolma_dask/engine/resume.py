"""Resume: what is left of a plan, read from its journal and from a listing before any cluster is started.

A unit is finished if its newest record has its key, its outputs are there with their recorded sizes, and its inputs are the files that the
record names. Outputs that a later run was about to make again are believed only if they hold the recorded bytes. Cost: one walk over the folders
that the plan fills; bytes are only read where a time stamp differs (`_same_bytes`), and after a run that was stopped (`_replaced`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.engine.plan import Plan, Task, chosen, outlines
from dolma_dask.errors import DolmaDaskError
from dolma_dask.formats import layout
from dolma_dask.formats.segments import tokens_first
from dolma_dask.io import files
from dolma_dask.io.files import Input
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Chosen, Journal, Record, RunRecord, Unit, is_same_file
from dolma_dask.ownership import Ownership

HASHING_THREADS = 8
"""Files hashed at once; reading and hashing both leave the interpreter lock."""

_Pair = tuple[InputRecord, Input]

_SURE: Sequence[_Pair] = ()
"""Stands for the inputs of a unit that is finished without a look at any byte."""


class RunState(Struct, frozen=True):
    """State of a plan: finished and left."""

    journal: Journal  # of the verb below the output root
    existing: Mapping[str, int]  # sizes of the files below the folders that the plan may fill
    # records of the units that need no work, by unit
    finished: Chosen
    left: Sequence[Task]  # what is to be done, without the units that are finished
    # finished units whose inputs have other time stamps now; once they are in the journal, nobody hashes these files again
    restamped: tuple[Record, ...] = ()


def look_back(plan: Plan, overwrite: bool) -> RunState:
    """Return what is finished of `plan` and what is left; with `overwrite` all of it is."""
    return look_back_at(plan.root, plan.verb, plan.tasks, plan.writes, overwrite)


def look_back_at(
    root: str, verb: str, tasks: Sequence[Task], writes: Sequence[str] = (), overwrite: bool = False
) -> RunState:
    """Return what is finished of some tasks of a verb, and what is left.

    Parameters
    ----------
    root, verb : str
        Where the journal is, and of what.
    tasks : sequence of Task
        Their units and inputs are looked at.
    writes : sequence of str
        Folders or file prefixes in which their outputs must be; none: the units have no files.
    overwrite : bool
        Take nothing for finished.
    """
    # files first: one that another run has just made must stand in the journal, which is read after them
    existing = _existing(root, writes)
    journal = Journal(root, verb)
    if overwrite:
        return RunState(journal, existing, Chosen(journal.records), tasks)
    candidates, unsure = _candidates(tasks, journal, existing)
    doubtful = {unit: pairs for unit, pairs in candidates.items() if pairs is not None}
    restamped = _restamped(root, journal, doubtful)
    wrong = doubtful.keys() - {record.unit for record in restamped}
    for record in restamped:
        journal.records.add(record)
    finished = Chosen(journal.records, (unit for unit in candidates if unit not in wrong))
    return RunState(journal, existing, finished, _left(tasks, unsure, finished), tuple(restamped))


def _restamped(root: str, journal: Journal, doubtful: Mapping[str, Sequence[_Pair]]) -> list[Record]:
    """Return new records of those units whose files, by their bytes, are what was read and written."""
    replaced = _replaced(root, [record for unit in doubtful if (record := journal.records[unit]).stale])
    left = {unit: pairs for unit, pairs in doubtful.items() if unit not in replaced}
    same = _same_bytes([pair for pairs in left.values() for pair in pairs])
    return [
        _restamp(journal.records[unit], pairs)
        for unit, pairs in left.items()
        if all(same[pair] for pair in pairs)
    ]


def _existing(root: str, writes: Sequence[str]) -> dict[str, int]:
    existing: dict[str, int] = {}
    for prefix in writes:
        folder, _, start = prefix.rpartition("/")
        base = f"{folder}/" if folder else ""
        infos = files.list_files(files.join(root, folder))
        existing.update({base + info.path: info.bytes for info in infos if _is_below(info.path, start)})
    return existing


def _is_below(path: str, start: str) -> bool:
    """Tell whether a listed path belongs to a folder (`start` empty), or is a file whose name begins so."""
    return not start or (path.startswith(start) and "/" not in path)


def _candidates(
    tasks: Sequence[Task], journal: Journal, existing: Mapping[str, int]
) -> tuple[dict[str, Sequence[_Pair] | None], list[int]]:
    """Return the units that may be finished, with the inputs of those that are if files have the recorded bytes, None for those that surely are; and the
    numbers of the tasks of which not all units surely are.
    """
    found: dict[str, Sequence[_Pair] | None] = {}
    unsure = []
    for number, task in enumerate(outlines(tasks)):
        now = {item.info.path: item for item in task.inputs}
        is_sure = True
        for unit in task.units:
            pairs = _pairs_of(unit, now, journal, existing)
            if pairs is not None:
                found[unit.name] = None if pairs is _SURE else pairs
            is_sure = is_sure and pairs is _SURE
        if not is_sure:
            unsure.append(number)
    return found, unsure


def _pairs_of(
    unit: Unit, now: Mapping[str, Input], journal: Journal, existing: Mapping[str, int]
) -> Sequence[_Pair] | None:
    """Return the inputs that have to hold the recorded bytes for a unit to be finished, or that it surely is; None: it is not."""
    record = journal.records.get(unit.name)
    if record is None or not _is_intact(record, unit, existing):
        return None
    if now.keys() != {item.path for item in record.inputs}:
        return None
    pairs = [(item, now[item.path]) for item in record.inputs]
    return _SURE if not record.stale and all(map(_has_same_stamp, pairs)) else pairs


def _has_same_stamp(pair: _Pair) -> bool:
    recorded, item = pair
    return recorded.bytes == item.info.bytes and recorded.stamp == item.info.stamp


def _is_intact(record: Record, unit: Unit, existing: Mapping[str, int]) -> bool:
    return record.key == unit.key and has_outputs(record, existing)


def has_outputs(record: Record, existing: Mapping[str, int]) -> bool:
    """Tell whether the outputs of a record are there, by the sizes of the files that are."""
    return all(
        existing.get(file.path) == file.bytes or layout.is_set_aside(file.path) for file in record.files
    )


def unseen(plan: Plan, records: Iterable[Record]) -> list[str]:
    """Return the outputs of records that are not listed below the folders of a plan, or with other sizes."""
    existing = _existing(plan.root, plan.writes)
    return [
        file.path for record in records for file in outputs(record) if existing.get(file.path) != file.bytes
    ]


def outputs(record: Record) -> list[FileRecord]:
    """Return the files of a record that must be there; those of ours below ``_quarantine/`` may be cleared away."""
    return [file for file in record.files if not layout.is_set_aside(file.path)]


def _replaced(root: str, records: Sequence[Record]) -> set[str]:
    """Return the units of stale records whose outputs do not hold the recorded bytes."""
    written = [(record.unit, file) for record in records for file in outputs(record) if file.checksum]
    if not written:
        return set()
    with ThreadPoolExecutor(min(HASHING_THREADS, len(written))) as pool:
        same = pool.map(lambda of: _is_as_written(files.join(root, of[1].path), of[1]), written)
        return {unit for (unit, _), is_same in zip(written, same, strict=True) if not is_same}


def _is_as_written(url: str, file: FileRecord) -> bool:
    try:
        return files.checksum(url) == file.checksum
    except (OSError, DolmaDaskError):
        return False


def _same_bytes(pairs: Sequence[_Pair]) -> dict[_Pair, bool]:
    """Tell for each input whether it holds the recorded bytes; those with another stamp are hashed, each once."""
    known = {pair: pair[0].bytes == pair[1].info.bytes for pair in pairs}
    moved = [pair for pair, same in known.items() if same and pair[0].stamp != pair[1].info.stamp]
    if moved:
        with ThreadPoolExecutor(min(HASHING_THREADS, len(moved))) as pool:
            known.update(zip(moved, pool.map(_has_same_bytes, moved), strict=True))
    return known


def _has_same_bytes(pair: _Pair) -> bool:
    recorded, item = pair
    try:
        return is_same_file(recorded, item.url, item.info)
    except (OSError, DolmaDaskError):
        return False  # whatever is wrong with the file, the shard that reads it says so


def _restamp(record: Record, pairs: Sequence[_Pair]) -> Record:
    inputs = tuple(replace(recorded, stamp=item.info.stamp) for recorded, item in pairs)
    return replace(record, inputs=inputs, stale=False)


def _left(tasks: Sequence[Task], unsure: Sequence[int], finished: Chosen) -> Sequence[Task]:
    """Return the tasks, of those that are not surely finished, of which something is not, without the units that are."""
    pairs = zip(unsure, outlines(chosen(tasks, unsure)), strict=True)
    left = [at for at, task in pairs if any(unit.name not in finished for unit in task.units)]
    return chosen(tasks, left, lambda task: _without(task, finished))


def _without(task: Task, finished: Mapping[str, Record]) -> Task:
    left = tuple(unit for unit in task.units if unit.name not in finished)
    return task if len(left) == len(task.units) else replace(task, units=left)


class Surplus(NamedTuple):
    """Files in the folders of a plan that it does not make, sorted, and what it has made of its own."""

    # in the order of their removal: of no unit, or of a unit in another format, that later stages would read or an earlier run has made
    orphans: list[str]
    # of units in another format, which runs were about to make that were stopped before they said so
    left_over: list[str]
    # would be orphans, but runs of this verb made them that announced other folders: never removed
    of_others: list[str]
    # made of shards whose document files are gone, and allowed to stay; with overwrite they are orphans
    kept: list[str]


def last_run(plan: Plan, journal: Journal) -> RunRecord | None:
    """Return the newest run that filled these folders."""
    return journal.newest.get(plan.writes)


def origin_of(root: str, origin: str) -> str:
    """Return the root of what is read, relative to the output root where both are local: the same after both were moved."""
    if origin and files.is_local(origin) and files.is_local(root):
        return files.relative(root, origin)
    return origin


def is_open(plan: Plan, state: RunState) -> bool:
    """Tell whether the newest run that filled these folders was stopped, left units undone or ended over its budget."""
    last = last_run(plan, state.journal)
    return last is not None and last.is_open


def has_died(plan: Plan, state: RunState) -> bool:
    """Tell whether the newest run that filled these folders ended without saying so: a shard may have killed its process."""
    last = last_run(plan, state.journal)
    return last is not None and not last.finished


def surplus(plan: Plan, state: RunState, overwrite: bool = False) -> Surplus:
    """Find the files in the folders of a plan that it does not make; with `overwrite` none is kept."""
    in_other_formats = _in_other_formats(plan, state)
    left_over = _announced(plan, state, in_other_formats) if in_other_formats else set()
    found = in_other_formats - left_over
    if plan.all_units is not None:
        units, made = plan.all_units | plan.beside, state.journal.by_file()
        ours = re.compile(plan.own_names)
        foreign = [
            path
            for path in state.existing
            if not units & {path, layout.unit_of(path)}
            and ours.match(path)
            and not path.startswith(layout.OF_RUNS)  # where the plan fills its whole root
        ]
        # readers open no folder whose name begins so
        read = {path for path in foreign if path.endswith(plan.reads) and not path.startswith("_")}
        found |= ({path for path in foreign if path in made} | read) - left_over
    gone = _without_documents(plan, state) if plan.documents else set()
    found |= gone if overwrite else set()
    of_others = set(Ownership(state.journal).of_others(found, plan.writes))
    kept = [] if overwrite else sorted(gone)
    orphans = sorted(found - of_others, key=tokens_first)
    return Surplus(orphans, sorted(left_over), sorted(of_others), kept)


def _without_documents(plan: Plan, state: RunState) -> set[str]:
    """Return the files that this verb has made of shards whose document files are gone, not only left out."""
    gone = {
        file.path: record.shard
        for record in state.journal.records.values()
        if not layout.has_stem_of(record.shard, plan.documents)
        for file in record.files
        if file.path in state.existing
    }
    return {
        path
        for path, shard in gone.items()
        if files.stat(files.join(plan.root, layout.document_path(shard))) is None
    }


def _announced(plan: Plan, state: RunState, paths: Set[str]) -> set[str]:
    """Return which of some files no record names, and a stopped run was about to make."""
    stopped = [run for run in state.journal.runs if not run.finished and set(run.writes) & set(plan.writes)]
    suffixes = {layout.suffix_of(task.shard) for task in plan.tasks}

    def is_announced(path: str, run: RunRecord) -> bool:
        file_format = run.params.get("format")
        has_format = (
            layout.format_of(path) == file_format if file_format else layout.suffix_of(path) in suffixes
        )
        return has_format and path.startswith(run.writes)

    unknown = paths - state.journal.by_file().keys()
    return {path for path in unknown if any(is_announced(path, run) for run in stopped)}


def _in_other_formats(plan: Plan, state: RunState) -> set[str]:
    every = plan.other_formats
    return {path for path in state.existing if layout.unit_of(path) in every} if every.own else set()
