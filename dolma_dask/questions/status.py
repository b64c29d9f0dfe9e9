"""status: what is done, left and changed in a dataset, from its journals and a listing; no document is read.

Cost: one listing of the dataset and of what it was made from, and 30 us per shard and verb. A shard is done if its outputs are there with
their recorded sizes and its inputs have the sizes that were read; where only a time stamp differs, the next run compares bytes, and it
counts as done here.
"""

import os
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dolma_dask.dataset import Dataset
from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Journal, Record, RunRecord, journals
from dolma_dask.questions.status_origins import CHANGED, GONE, TOUCHED, Listing, Origins, reads_files
from dolma_dask.questions.status_summary import Leftover, StatusRow, StatusSummary
from dolma_dask.summary import Summary

_WORK = layout.WORK


def status(dataset: str | Dataset | Summary, /) -> StatusSummary:
    """Tell what is done, left and changed in a dataset: a row per verb and what it writes.

    Example: dolma-dask status corpus/wiki/v0

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL of a dataset, or of token shards.

    Returns
    -------
    StatusSummary
        Its exit status is 1 if some shard is left or was made from files that have changed, or a run was stopped.

    Raises
    ------
    UsageError
        Nothing is there that this tool knows.
    """
    root = _root(dataset)
    listed = Listing(root)
    known = list(journals(root))
    documents = [path for path in listed.below(layout.DOCUMENTS) if layout.suffix_of(path)]
    if not known and not documents:
        raise UsageError(
            f"{root} holds neither documents/ nor a journal; expected a dataset, or a folder that a verb wrote, such as corpus/wiki/v0."
        )
    rows = [row for journal in known for row in _rows_of(journal, listed)]
    rows.sort(key=lambda row: (row.started or 0.0, row.verb, row.writes))
    leftovers = tuple(_leftovers(listed))
    notes = (*_row_notes(rows), *_leftover_notes(leftovers, root), *_unproved(listed, known))
    return StatusSummary(
        root,
        len(documents),
        sum(listed.files[path].bytes for path in documents),
        tuple(rows),
        leftovers,
        notes,
    )


def _root(dataset: str | Dataset | Summary) -> str:
    if isinstance(dataset, Dataset):
        return dataset.root
    url = dataset.target if isinstance(dataset, Summary) else os.fspath(dataset)
    return layout.dataset_root(files.normalize(url))


def _rows_of(journal: Journal, listed: Listing) -> Iterator[StatusRow]:
    """Yield a row for each thing that a verb writes: what its runs have announced."""
    prefixes = sorted({prefix for run in journal.runs for prefix in run.writes}, key=len, reverse=True)
    groups: dict[str, list[Record]] = {}
    wholes: list[Record] = []
    for record in journal.records.values():
        if _is_whole(record):
            wholes.append(record)
        else:
            groups.setdefault(_of(record.unit, prefixes), []).append(record)
    for run in journal.runs:
        begun = any(prefix in groups for prefix in run.writes)
        for prefix in run.writes:
            if prefix.endswith("/") or not begun:
                groups.setdefault(prefix, [])
    for name, records in sorted(groups.items()):
        mine = [record for record in wholes if _is_about(record, name, prefixes)]
        yield _row(journal, name, records if name else _newest(records), mine, listed)


def _newest(records: Iterable[Record]) -> list[Record]:
    """Return the newest record of each shard, where nothing is written: `validate` looks at a shard beside several attribute sets."""
    newest = {record.shard: record for record in sorted(records, key=lambda record: record.finished)}
    return list(newest.values())


def _is_whole(record: Record) -> bool:
    """Tell whether a record sums up others, such as that of an attribute set: its name is none of a file."""
    return "." not in posixpath.basename(record.unit)


def _of(path: str, prefixes: Sequence[str]) -> str:
    """Return the longest announced prefix of a path."""
    return next((prefix for prefix in prefixes if path.startswith(prefix)), "")


def _is_about(record: Record, name: str, prefixes: Sequence[str]) -> bool:
    """Tell whether a record that sums up others speaks of what is counted under `name`."""
    path = record.files[0].path if record.files else record.unit
    return _of(path, prefixes) in (name, "")


def _row(
    journal: Journal, name: str, shards: Sequence[Record], wholes: Sequence[Record], listed: Listing
) -> StatusRow:
    runs = [run for run in journal.runs if _concerns(run, name)]
    origins = Origins(journal, listed, runs, [*shards, *wholes])
    there = [record for record in shards if _is_there(record, listed.files)]
    states = Counter(origins.of(record).state(record) for record in there if reads_files(record))
    above = Counter(origins.of(record).state(record) for record in wholes if reads_files(record) and name)
    known = states + above
    is_gone = known[GONE] == known.total() > 0  # all at once: cleared away after the work, not changed
    changed = states[CHANGED] + (0 if is_gone else states[GONE])
    if (above[CHANGED] or above[GONE]) and not is_gone:
        changed = len(there)
    newest = runs[-1] if runs else None
    return StatusRow(
        verb=journal.verb,
        writes=_shown(name, shards),
        done=len(there) - changed,
        left=_left(name, shards, there, runs, origins),
        changed=changed,
        touched=min(states[TOUCHED], len(there) - changed),
        bad_rows=_bad_rows([*shards, *wholes], listed),
        bytes=sum(file.bytes for record in shards for file in record.files if file.path in listed.files),
        seconds=sum(record.seconds for record in shards),
        started=newest.started if newest else None,
        finished=max((record.finished for record in shards), default=0.0) or None,
        stopped=bool(_open_runs(runs, name)),
        is_origin_gone=is_gone,
    )


def _shown(name: str, shards: Sequence[Record]) -> str:
    """Return a prefix as people write it: ``part-*`` for files whose names begin so."""
    is_beginning = name and not name.endswith("/") and any(record.unit != name for record in shards)
    return f"{name}*" if is_beginning else name


def _concerns(run: RunRecord, name: str) -> bool:
    """Tell whether a run would write what is counted under `name`."""
    return not run.writes or name.startswith(run.writes)


def _open_runs(runs: Sequence[RunRecord], name: str) -> list[RunRecord]:
    """Return the runs that have not ended by themselves and that no later one has gone over again."""
    return [
        run
        for number, run in enumerate(runs)
        if not run.finished and not any(_covers(later, run, name) for later in runs[number + 1 :])
    ]


def _covers(later: RunRecord, run: RunRecord, name: str) -> bool:
    """Tell whether `later` writes all that `run` would, of what is counted under `name`."""
    asked = [prefix for prefix in run.writes if name.startswith(prefix)]
    return all(prefix.startswith(later.writes) for prefix in asked)


def _is_there(record: Record, listed: Mapping[str, FileInfo]) -> bool:
    outputs = [file for file in record.files if not file.path.startswith("_")]
    return not record.stale and all(
        file.path in listed and listed[file.path].bytes == file.bytes for file in outputs
    )


def _left(
    name: str,
    records: Sequence[Record],
    there: Sequence[Record],
    runs: Sequence[RunRecord],
    origins: Origins,
) -> int | None:
    """Count what failed, was left out or never begun: against the listing of what was read, else as the last runs told."""
    shards = origins.of(None).shards
    is_by_shard = not any(record.unit == record.shard for record in records)
    if shards is not None and is_by_shard:
        return len(shards - {layout.stem_of(record.shard) for record in there})
    if _open_runs(runs, name):
        return None
    newest = {run.writes: run for run in runs}
    return len(records) - len(there) + sum(run.missing for run in newest.values())


def _bad_rows(records: Iterable[Record], listed: Listing) -> int:
    """Count the records in quarantine files that are still there."""
    prefix = f"{layout.QUARANTINE}/"
    return sum(
        file.rows
        for record in records
        for file in record.files
        if file.path.startswith(prefix) and file.path in listed.files
    )


# ------------------------------------------------------------------------------------------------ what else is there


def _leftovers(listed: Listing) -> Iterator[Leftover]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for path in listed.below(_WORK):
        found["/".join(path.split("/")[:2])].append(listed.files[path].bytes)
    for folder, sizes in sorted(found.items()):
        yield Leftover(folder, folder.split("/")[1].partition("-")[0], len(sizes), sum(sizes))


def _leftover_notes(leftovers: Sequence[Leftover], root: str) -> Iterator[str]:
    for item in leftovers:
        yield (
            f"{item.folder} holds {counted(item.files, 'file')}, {item.bytes / 1e6:,.1f} MB, of a {item.verb} that has not ended: the same "
            f"dolma-dask {item.verb} {root} goes on from there and removes them"
        )


def _row_notes(rows: Sequence[StatusRow]) -> Iterator[str]:
    for row in rows:
        what = f"{row.verb} of {row.writes}" if row.writes else row.verb
        if row.stopped:
            yield f"{what}: the last run was stopped or still goes on; the same command does only what is left"
        elif row.left:
            yield f"{what}: {counted(row.left, 'shard')} failed or left out; the same command does only these"
        if row.changed:
            yield f"{what}: {counted(row.changed, 'shard')} made from files that have changed; the same command makes them again"
        if row.touched:
            yield f"{what}: inputs of {counted(row.touched, 'shard')} have new time stamps and old sizes; the next run compares their bytes"
        if row.is_origin_gone:
            yield f"{what}: what it was made from is not there any more"
        if row.bad_rows:
            yield f"{what}: {counted(row.bad_rows, 'record')} set aside in {layout.QUARANTINE}/{row.verb}/"


def _unproved(listed: Listing, known: Sequence[Journal]) -> Iterator[str]:
    """Name the attribute sets that no journal speaks of."""
    made = {path for journal in known for path in journal.by_file()}
    sets: defaultdict[str, int] = defaultdict(int)
    for path in listed.below(layout.ATTRIBUTES):
        if path not in made and path.count("/") > 1:
            sets[path.split("/")[1]] += 1
    for name, count in sorted(sets.items()):
        yield f"attribute set {name}: {counted(count, 'file')} of another tool, in no journal; they are compared with the documents row by row"
