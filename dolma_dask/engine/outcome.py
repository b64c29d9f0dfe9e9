"""Words of a run at its beginning and at its end: sums of counts, notes, and the errors for shards that failed and for too many bad records."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from dolma_dask.display import byte_size, counted
from dolma_dask.engine.plan import Plan, outlines
from dolma_dask.engine.resume import RunState, Surplus
from dolma_dask.errors import BadRecordBudgetError, Failure, StageError
from dolma_dask.formats import layout
from dolma_dask.io import files, quarantine
from dolma_dask.io.records import sum_counts
from dolma_dask.journal import Record
from dolma_dask.options.groups import RunOptions
from dolma_dask.results.summary import Summary


def again_notes(state: RunState, options: RunOptions) -> Iterator[str]:
    """Say what is made again that an earlier run had made."""
    known = {
        unit.name: unit.key
        for task in outlines(state.left)
        for unit in task.units
        if unit.name in state.journal.records
    }
    other = [name for name, key in known.items() if state.journal.records[name].key != key]
    again = "to be made again" if options.dry_run else "made again now"
    if other and not options.overwrite:
        yield f"{counted(len(other), 'file')} made before with other options or inputs, {again}; first {other[0]}"
    foreign = [
        unit.name
        for task in outlines(state.left)
        for unit in task.units
        if unit.name in state.journal.foreign
    ]
    if foreign:
        yield f"{counted(len(foreign), 'record')} of another journal format, never believed: {again}; first {foreign[0]}"


def removal_notes(surplus: Surplus, orphans_are: str, left_over_are: str) -> Iterator[str]:
    """Say what happened to files that the plan does not make."""
    if orphans := surplus.orphans:
        yield f"{counted(len(orphans), 'file')} of an earlier run, which are not of this one, {orphans_are}; first {orphans[0]}"
    if kept := surplus.kept:
        yield f"{counted(len(kept), 'file')} made of document files that are gone, kept; --overwrite removes what was made of them; first {kept[0]}"
    if left_over := surplus.left_over:
        yield f"{counted(len(left_over), 'file')} that a stopped run has left in another format, {left_over_are}; first {left_over[0]}"


def window_notes(records: Iterable[Record]) -> Iterator[str]:
    """Say what memory files with long windows take."""
    windows = {
        item.path: item.window_bytes for record in records for item in record.inputs if item.window_bytes
    }
    if windows:
        path, most = max(windows.items(), key=lambda item: (item[1], item[0]))
        yield (
            f"{counted(len(windows), 'zstd file')} with a long window: each worker that reads one needs up to {byte_size(most)} more memory; "
            f"largest {path}"
        )


def of_different_shards(records: Collection[Record]) -> bool:
    """Tell whether each record is surely of another shard: by hashes, since a million names would take a tenth of a gigabyte."""
    hashes = np.fromiter((hash(record.shard) for record in records), np.int64, len(records))
    hashes.sort()  # np.unique would import 20 ms of masked arrays
    return bool((hashes[1:] != hashes[:-1]).all())


def totals(records: Collection[Record], *, differ: bool | None = None) -> dict[str, float]:
    """Sum the counts over shards, which `differ` or are compared; units of one shard speak of the same rows, so the largest stands for all of them."""
    if of_different_shards(records) if differ is None else differ:
        return sum_counts(record.counts for record in records)
    by_shard: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for record in records:
        known = by_shard[record.shard]
        known.update({name: max(count, known.get(name, count)) for name, count in record.counts.items()})
    return sum_counts(by_shard.values())


def stage_error(
    verb: str, failures: Sequence[Failure], shards: int, summary: Summary | None = None
) -> StageError:
    """Return the error for shards that failed."""
    first = failures[0]
    return StageError(
        f"{verb}: {len(failures):,} of {counted(shards, 'shard')} failed; the others are finished. "
        f"First: {first.shard}: {first.error}: {first.message}",
        failures=failures,
        summary=summary,
    )


def excess_of(plan: Plan, counts: Mapping[str, float]) -> str:
    """Say that more rows are bad than is allowed; empty if they are not."""
    bad, rows = counts.get("bad_records", 0), counts.get("documents_in", 0)
    if bad <= plan.max_bad_fraction * rows:
        return ""
    allowed = f"allowed are {plan.max_bad_fraction:.3%} (max_bad_fraction)"
    return f"{bad:,.0f} of {rows:,.0f} rows are bad ({bad / max(rows, 1):.3%}); {allowed}"


def check_budget(plan: Plan, records: Iterable[Record], summary: Summary) -> None:
    """Raise `BadRecordBudgetError` if more rows are bad than is allowed."""
    if excess := excess_of(plan, summary.counts):
        folder = plan.quarantine or files.join(plan.root, f"{layout.QUARANTINE}/{plan.verb}")
        shards = dict.fromkeys(record.shard for record in records if record.counts.get("bad_records"))
        reason = quarantine.commonest(folder, shards)
        raise BadRecordBudgetError(
            f"{plan.verb}: {excess}.{reason} Look at {folder}/, mend the input or allow more.",
            bad=summary.counts.get("bad_records", 0),
            rows=summary.counts.get("documents_in", 0),
            summary=summary,
        )
