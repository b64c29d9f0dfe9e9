"""How a dataset came to be, as its journals tell it: which verbs ran, on what, and what went in and out.

A mixed dataset names the one it was made from, so the history is followed back to the first. Numbers are sums over the records of
shards that the dataset has now and whose files are still those of the record. Cost: one listing per dataset and some 10 us per record.
"""

import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import Journal, Record, RunRecord, journals
from dolma_dask.reports.numbers import UNKNOWN

MAKES_DOCUMENTS = ("convert", "mix")
"""Verbs that begin a dataset; the others follow in the order in which they were first run."""

MOST_LINKS = 100
"""Datasets that a history is followed through."""


@dataclass(frozen=True)
class Step:
    """One verb of the history.

    Attributes
    ----------
    verb : str
        Its name.
    root : str
        Where it wrote.
    runs : tuple of RunRecord
        Every start of it, oldest first.
    records : tuple of Record
        Its finished units whose files are there as they were written.
    """

    verb: str
    root: str
    runs: tuple[RunRecord, ...]
    records: tuple[Record, ...]

    @property
    def params(self) -> Mapping[str, Any]:
        """What the newest run was asked."""
        return self.runs[-1].params if self.runs else {}

    @property
    def current(self) -> tuple[Record, ...]:
        """Records that were made as the newest of them was: with the same rule and options."""
        if not self.records:
            return ()
        key = max(self.records, key=lambda record: record.finished).key
        return tuple(record for record in self.records if record.key == key)

    @property
    def newest(self) -> float:
        """Time of the last thing that happened, in seconds since 1970; 0 if nothing did."""
        return max(
            (*(run.started for run in self.runs), *(record.finished for record in self.records)), default=0.0
        )


@dataclass(frozen=True)
class History:
    """The steps that led to a dataset and to token shards made of it.

    Attributes
    ----------
    steps : tuple of Step
        In order.
    parent : str or None
        Root of the dataset that the newest mix selected from, if it is there.
    notes : tuple of str
        What could not be followed.
    """

    steps: tuple[Step, ...]
    parent: str | None = None
    notes: tuple[str, ...] = ()

    def of_shards(self, wanted: Collection[str]) -> "History":
        """Return the history of the shards whose `stem` is wanted; what speaks of a whole dataset stays."""
        steps = (
            replace(
                step, records=tuple(r for r in step.records if r.shard == r.unit or stem(r.shard) in wanted)
            )
            for step in self.steps
        )
        return replace(self, steps=tuple(steps))

    def step(self, root: str, verb: str) -> Step | None:
        """Return what `verb` did at `root`."""
        return next((step for step in self.steps if (step.root, step.verb) == (root, verb)), None)

    def created(self) -> str:
        """Return when the last step ended, in UTC; a dash if no journal knows."""
        newest = max((step.newest for step in self.steps), default=0.0)
        return datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if newest else UNKNOWN


def stem(shard: str) -> str:
    """Return what a shard is known by in every version: its path without suffix and without the number of a part."""
    return layout.stem_of(layout.unit_of(shard))


def read_history(root: str, tokens: Sequence[str] = ()) -> History:
    """Follow the journals of a dataset back to its first version, and forward to token shards.

    Parameters
    ----------
    root : str
        Of the dataset.
    tokens : sequence of str
        Folders that the verb ragged wrote.

    Raises
    ------
    UsageError
        A folder of `tokens` has no journal.
    """
    roots, notes = _lineage(root)
    steps = [step for found in roots for step in _steps(found)]
    steps += [_ragged_step(folder) for folder in dict.fromkeys(map(files.normalize, tokens))]
    return History(tuple(steps), roots[-2] if len(roots) > 1 else None, notes)


def _lineage(root: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the roots from the first version to `root`, and a note if the first cannot be reached."""
    roots = [root]
    while len(roots) < MOST_LINKS:
        runs = Journal(roots[-1], "mix").runs
        told = runs[-1].params.get("from") if runs else None
        if not isinstance(told, str):
            break
        found = find_parent(roots[-1], told, runs[-1].origin)
        if found is None:
            note = f"{last_name(roots[-1])} was mixed from {last_name(told)}, which is not there any more: what came before is left out"
            return roots[::-1], (note,)
        if found in roots:
            break
        roots.append(found)
    return roots[::-1], ()


def find_parent(root: str, told: str, origin: str = "") -> str | None:
    """Return the dataset that `root` was mixed from, or None if it is gone.

    Parameters
    ----------
    root, told : str
        The dataset, and where its parent was then.
    origin : str
        Where that was seen from `root`, which holds if both were moved or copied together; so it is looked at first.
    """
    beside = files.join(root.rpartition("/")[0], last_name(told))
    seen = [posixpath.normpath(f"{root}/{origin}")] if origin.startswith(".") and files.is_local(root) else []
    places = (*seen, told, beside)
    return next((url for url in places if url != root and _has_documents(url)), None)


def _has_documents(root: str) -> bool:
    return any(layout.suffix_of(info.path) for info in files.list_files(files.join(root, layout.DOCUMENTS)))


def last_name(url: str) -> str:
    """Return the last part of a URL or path: what may be shown of a place that is nobody else's business."""
    return url.rstrip("/").rpartition("/")[2]


def _steps(root: str) -> list[Step]:
    found = [journal for journal in journals(root) if journal.runs or journal.records]
    if not found:
        return []
    made = {path.split("/")[0] for journal in found for path in journal.by_file()}
    folders = sorted(name for name in made if not name.startswith("_"))
    sizes = {
        f"{name}/{info.path}": info.bytes
        for name in folders
        for info in files.list_files(files.join(root, name))
    }
    found.sort(
        key=lambda journal: (
            journal.verb not in MAKES_DOCUMENTS,
            journal.runs[0].started if journal.runs else 0.0,
        )
    )
    return [_step(journal, sizes) for journal in found]


def _ragged_step(folder: str) -> Step:
    journal = Journal(folder, "ragged")
    if not journal.runs and not journal.records:
        raise UsageError(
            f"{folder} has no journal of ragged ({layout.JOURNAL}/ragged); expected a folder with token shards. Name the folder that "
            "`dolma-dask ragged` wrote, or leave it out of --tokens."
        )
    return _step(journal, {info.path: info.bytes for info in files.list_files(folder)})


def _step(journal: Journal, sizes: Mapping[str, int]) -> Step:
    there = (record for record in journal.records.values() if _is_there(record, sizes))
    records = sorted(there, key=lambda record: record.unit.encode())
    return Step(journal.verb, journal.root, tuple(journal.runs), tuple(records))


def _is_there(record: Record, sizes: Mapping[str, int]) -> bool:
    return all(sizes.get(file.path) == file.bytes for file in record.files if not file.path.startswith("_"))
