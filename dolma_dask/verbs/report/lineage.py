"""The history of a dataset, read from its journals.

A mixed dataset names the one it was made from, so the history is followed back to the first. Numbers are sums over the records of
shards that the dataset has now and whose files are still those of the record. Cost: one listing per dataset and some 10 us per record.
"""

import posixpath
from collections.abc import Mapping, Sequence

import msgspec

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import Journal, Record, journals
from dolma_dask.registry import names_of
from dolma_dask.verbs.report.history import History, Step, is_packed
from dolma_dask.verbs.report.names import last_name

MOST_LINKS = 100
"""Datasets that a history is followed through."""


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
    return History(tuple(steps), roots[-2] if len(roots) > 1 else None, notes, tuple(roots))


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


def _steps(root: str) -> list[Step]:
    pages = names_of("page")  # a page does not show how it was made itself
    found = [
        journal
        for journal in journals(root)
        if journal.verb not in pages and (journal.runs or journal.records)
    ]
    if not found:
        return []
    made = {path.split("/")[0] for journal in found for path in journal.by_file()}
    folders = sorted(name for name in made if not name.startswith("_"))
    sizes = {
        f"{name}/{info.path}": info.bytes
        for name in folders
        for info in files.list_files(files.join(root, name))
    }
    first = names_of("documents")  # others follow in the order in which they were first run
    found.sort(
        key=lambda journal: (journal.verb not in first, journal.runs[0].started if journal.runs else 0.0)
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
    there = [record for record in journal.records.values() if _is_there(record, sizes)]
    records = sorted(_together(there), key=lambda record: record.unit.encode())
    return Step(journal.verb, journal.root, tuple(journal.runs), tuple(records))


def _is_there(record: Record, sizes: Mapping[str, int]) -> bool:
    outputs = (file for file in record.files if not file.path.startswith("_"))
    return not record.stale and all(sizes.get(file.path) == file.bytes for file in outputs)


def _together(records: Sequence[Record]) -> list[Record]:
    """Return records, of files that were cut by size only that of all of them, which knows what they were made of."""
    ended = {record.unit: record.finished for record in records}
    packed = [record for record in records if is_packed(record)]
    parts = {file.path for record in packed for file in record.files}
    found = [record for record in records if is_packed(record) or record.unit not in parts]
    for place, record in enumerate(found):
        if is_packed(record):  # it ended with the last of its files
            last = max((ended.get(file.path, 0.0) for file in record.files), default=0.0)
            found[place] = msgspec.structs.replace(record, finished=max(record.finished, last))
    return found
