"""The passes of an exchange through files: what is left of each is done, and files that nobody needs any more are removed.

Disk at most: the records once (those of the largest range twice while it is sorted) and what the reducer gives out once; then the latter
twice. What is finished is known from the journals in the folder. Ranges and groups of shards are finished under a key made from the
checksums of all records, so that a changed input makes all of them again. Files that are removed after their pass stand in the journal
without files; should they be needed again (an input or a later file has changed), the exchange begins anew.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from dolma_dask import engine
from dolma_dask.engine import Plan, Stage, Task, Unit, resume
from dolma_dask.exchange import buckets, folders
from dolma_dask.exchange.buckets import BucketRange
from dolma_dask.exchange.contract import word_count
from dolma_dask.exchange.exchanged import Exchanged, ShardRecords
from dolma_dask.exchange.phases import (
    COLLATE,
    REDUCE,
    SCATTER,
    SEAL,
    Collate,
    Reduce,
    Scatter,
    Slices,
    file_of,
    range_tasks,
    shards_of,
)
from dolma_dask.exchange.wanted import Wanted
from dolma_dask.io import files
from dolma_dask.journal import Journal, Record


class FilesNeededError(Exception):
    """Work is left that needs files which were removed after their pass."""


def run(wanted: Wanted) -> Exchanged:
    """Do what is left of an exchange."""
    try:
        return _run(wanted)
    except FilesNeededError:
        folders.remove_tree(wanted.folder)
        return _run(wanted)


def _run(wanted: Wanted) -> Exchanged:
    scattered = _scatter(wanted)
    key = wanted.work_key(REDUCE, [record.info["checksum"] for record in scattered])
    reduced = _reduce(wanted, scattered, key)
    _release(wanted, SCATTER, scattered)
    return conclude(wanted, scattered, reduced, [record.info["reduced"] for record in reduced], key)


def conclude(
    wanted: Wanted,
    scattered: Sequence[Record],
    reduced: Sequence[Record],
    infos: Sequence[dict[str, Any]],
    key: str,
) -> Exchanged:
    """Do the last pass, if there is anything to collate, and return the result."""
    told = {record.shard: _told(record) for record in scattered}
    dtype = wanted.reducer.dtype
    by_shard = None if dtype is None else _collate(wanted, reduced, dtype, key)
    return Exchanged(wanted.folder, tuple(infos), told, by_shard)


def _told(record: Record) -> Record:
    """Return the record of a task as the emitter told it."""
    return msgspec.structs.replace(record, files=_side_files(record), info=record.info["emitted"])


def _side_files(record: Record) -> tuple[Any, ...]:
    return tuple(file for file in record.files if file.path != record.unit)


def _ranges(records: Sequence[Record], count: int, most: int) -> tuple[BucketRange, ...]:
    histogram = buckets.sum_histograms((record.info["histogram"] for record in records), count)
    return buckets.choose_ranges(histogram, most)


def _scatter(wanted: Wanted) -> list[Record]:
    key = wanted.work_key(SCATTER)
    tasks = [
        Task(task.shard, (Unit(file_of(SCATTER, number), key),), task.inputs, task)
        for number, task in enumerate(wanted.tasks)
    ]
    stage = Scatter(
        wanted.pass_verb(SCATTER), wanted.emitter, wanted.folder, wanted.keys, wanted.limits(wanted.words)
    )
    return run_pass(wanted, stage, tasks)


def _reduce(wanted: Wanted, scattered: Sequence[Record], key: str) -> list[Record]:
    limits = wanted.limits(wanted.words)
    out = wanted.reducer.dtype
    stage = Reduce(
        wanted.pass_verb(REDUCE),
        wanted.reducer,
        wanted.emitter.dtype,
        Slices(wanted.folder, SCATTER, seals_of(scattered), wanted.words, wanted.buckets),
        wanted.places,
        limits,
        wanted.limits(word_count(out)).segment if out is not None else 1,
    )
    ranges = _ranges(scattered, wanted.buckets, limits.range)
    return run_pass(wanted, stage, range_tasks(REDUCE, ranges, 8 * wanted.words, key), scattered)


def _collate(wanted: Wanted, reduced: Sequence[Record], dtype: np.dtype[Any], key: str) -> ShardRecords:
    words = word_count(dtype)
    limits = wanted.limits(words)
    groups = _ranges(reduced, wanted.places.count, limits.range)
    slices = Slices(wanted.folder, REDUCE, seals_of(reduced), words, wanted.places.count)
    stage = Collate(wanted.pass_verb(COLLATE), slices, wanted.places, limits)
    collated = run_pass(wanted, stage, range_tasks(COLLATE, groups, 8 * words, key), reduced)
    _release(wanted, REDUCE, reduced)
    bounds = [shards_of(group, wanted.places) for group in groups]
    firsts, counts = tuple(first for first, _ in bounds), tuple(count for _, count in bounds)
    return ShardRecords(wanted.folder, dtype, firsts, counts, seals_of(collated))


def seals_of(records: Sequence[Record]) -> tuple[str, ...]:
    """Return the seals of the files of a pass."""
    return tuple(record.info[SEAL] for record in records)


def run_pass(
    wanted: Wanted, stage: Stage, tasks: Sequence[Task], sources: Sequence[Record] = ()
) -> list[Record]:
    """Run what is left of a pass over the files of `sources`, and return the records of all its tasks, in their order."""
    plan = Plan(stage, wanted.folder, tasks, {"key": wanted.key}, ("",), bad_is_loss=True)
    if not all(map(_has_file, sources)) and resume.look_back(plan, False).left:
        raise FilesNeededError
    engine.run(plan, wanted.options)
    known = Journal(wanted.folder, stage.verb).records
    return [known[unit.name] for task in tasks for unit in task.units]


def _has_file(record: Record) -> bool:
    return any(file.path == record.unit for file in record.files)


def _release(wanted: Wanted, phase: str, records: Sequence[Record]) -> None:
    """Say in the journal that the files of a pass are needed no more, then remove them."""
    journal = Journal(wanted.folder, wanted.pass_verb(phase))
    held = [record for record in records if _has_file(record)]
    if held:
        writer = journal.start({"key": wanted.key}, ("",), "")
        for record in held:
            writer.add(msgspec.structs.replace(record, files=_side_files(record)))
        writer.finish(0)
        writer.close()
    for info in files.list_files(files.join(wanted.folder, phase)):
        files.remove(files.join(wanted.folder, f"{phase}/{info.path}"))
