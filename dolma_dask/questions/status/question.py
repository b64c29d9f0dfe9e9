"""status: done, left and changed shards of a dataset, from its journals and a listing; no document is read.

Cost: one listing of the dataset and of what it was made from, and 30 us per shard and verb. A shard is done if its outputs are there with
their recorded sizes and its inputs have the sizes that were read; where only a time stamp differs, the next run compares bytes, and it
counts as done here.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from dolma_dask.dataset import Dataset, version_root
from dolma_dask.display import byte_size, counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import Journal, garbage_notes, journals
from dolma_dask.options.base import WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetLike, DatasetOptions, of_version, same
from dolma_dask.questions.status.estimated import ESTIMATED, EstimateRow, compare
from dolma_dask.questions.status.inputs import Listing
from dolma_dask.questions.status.pages import rows_of_pages
from dolma_dask.questions.status.rows import StatusRow, rows_of
from dolma_dask.reading.indexes import IndexedDataset, index_table, indexed_datasets
from dolma_dask.registry import IN_PYTHON_ALONE, VERBS, names_of
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Notes, Part
from dolma_dask.results.summary import Summary
from dolma_dask.results.table import Column, Kind, Table


@dataclass(frozen=True)
class Leftover:
    """A folder of work under way."""

    folder: str  # relative to the dataset
    verb: str  # whose it is
    # what lies in it
    files: int
    bytes: int


class StatusSummary(Answer, frozen=True):
    """Work done, left and changed in a dataset; prints as a table."""

    root: str  # of the dataset
    # its document files, and their stored bytes
    shards: int
    bytes: int
    rows: tuple[StatusRow, ...]  # in the order in which the verbs were first run
    leftovers: tuple[Leftover, ...] = ()  # what exchanges that were stopped have left
    notes: tuple[str, ...] = ()  # what a person should know
    estimated: tuple[EstimateRow, ...] = ()  # verbs that `estimate` spoke of before they ran
    index: tuple[IndexedDataset, ...] = ()  # of dedupe, if the folder is one
    verb: str = "status"

    @property
    def exit_status(self) -> int:
        """0 if the commands that were run would find nothing to do, 1 if some shard is left, changed, a run was stopped or over budget, or a check found problems."""
        return 1 if self.leftovers or any(row.is_open or row.problems for row in self.rows) else 0

    def parts(self) -> Iterator[Part]:
        if self.index:
            yield Heading(f"index of dedupe {self.root}: {byte_size(self.bytes)} stored")
            yield index_table(self.index)
            return
        documents = counted(self.shards, "document file")
        yield Heading(f"status of {self.root}: {documents}, {byte_size(self.bytes)} stored")
        yield Table.of("", COLUMNS, self.rows)
        yield Table.of("as estimated", ESTIMATED, self.estimated)
        yield Notes(self.notes)


def _left_cell(row: StatusRow) -> tuple[int | str, Kind]:
    return ("?", "words") if row.left is None else (row.left, "integer")


COLUMNS = (
    Column("verb", "name"),
    Column("writes", "words"),
    Column("done"),
    Column("left", "mixed", _left_cell),
    Column("changed"),
    Column("bad rows"),
    Column("size", "size", "bytes"),
    Column("task time", "seconds", "seconds"),
    Column("last finished", "moment", "finished"),
    Column("state", "words"),
)
"""Columns of what verbs have done."""


@dataclass(frozen=True, kw_only=True)
class StatusOptions(DatasetOptions):
    """Options of `status`."""

    source: Annotated[str | None, Opt("Name of the folder of a source; with `version`.", group=WHAT)] = None


@command
def status(
    dataset: Annotated[
        DatasetLike,
        Opt(
            "Folder or URL of a dataset, of token shards, or of an index of dedupe. On the command line also a root of datasets: all below it are shown.",
            kind="str or Dataset",
            convert=same,
        ),
    ],
    /,
    *,
    options: StatusOptions,
) -> StatusSummary:
    """Tell what is done, left and changed in a dataset: a row per verb and what it writes.

    Example: dolma-dask status corpus/wiki/v0

    Returns
    -------
    StatusSummary
        Its exit status is 1 if some shard is left or was made from files that have changed, a run was stopped or ended over its budget of bad records, or the
        newest `validate` found problems.

    Raises
    ------
    UsageError
        Nothing is there that this tool knows.
    """
    root = _root(dataset, options.source, options.version)
    return status_of(Listing(root, skip=tuple(options.skip)), list(journals(root)))


def status_of(listed: Listing, known: Sequence[Journal]) -> StatusSummary:
    """Return the same from a listing and the journals."""
    root = listed.root
    documents = [path for path in listed.below(layout.DOCUMENTS) if layout.suffix_of(path)]
    leftovers = tuple(_leftovers(listed))
    begun = any(item.verb in VERBS or item.verb in IN_PYTHON_ALONE for item in leftovers)
    if not known and not documents and not begun:
        if index := indexed_datasets(root):
            return StatusSummary(root, 0, sum(one.bytes for one in index), (), index=index)
        raise UsageError(
            f"{root} holds neither documents/ nor a journal; expected a dataset, or a folder that a verb wrote, such as corpus/wiki/v0."
        )
    rows = [row for journal in known for row in _rows_of(journal, listed, known)]
    rows.sort(key=lambda row: (row.started or 0.0, row.verb, row.writes))
    notes = (
        *_row_notes(rows),
        *_leftover_notes(leftovers, root, bool(documents)),
        *_unread(listed),
        *_unproved(listed, known),
        *garbage_notes(known),
    )
    return StatusSummary(
        root,
        len(documents),
        sum(listed.files[path].bytes for path in documents),
        tuple(rows),
        leftovers,
        notes,
        tuple(compare(root, known, listed.files)),
    )


def _rows_of(journal: Journal, listed: Listing, known: Sequence[Journal]) -> Iterator[StatusRow]:
    is_page = journal.verb in names_of("page")
    return rows_of_pages(journal, listed, known) if is_page else rows_of(journal, listed)


def _unread(listed: Listing) -> Iterator[str]:
    """Say which files of documents nobody reads."""
    paths = [
        path
        for path in listed.below(layout.DOCUMENTS)
        if not layout.suffix_of(path) and not layout.is_marker(path)
    ]
    if paths:
        yield (
            f"{counted(len(paths), 'file')} below documents/ that nobody would read, first {paths[0]}: verbs refuse the dataset until it is renamed or "
            "named with --skip"
        )


def _root(dataset: str | Dataset | Summary, source: str | None, version: str | None) -> str:
    of_version(dataset, None, None)
    if isinstance(dataset, Dataset):
        return dataset.root
    url = dataset.target if isinstance(dataset, Summary) else os.fspath(dataset)
    if source is not None or version is not None:
        url = version_root(url, source, version)
    return layout.dataset_root(files.normalize(url))


# ------------------------------------------------------------------------------------------------ what else is there


def _leftovers(listed: Listing) -> Iterator[Leftover]:
    folders: defaultdict[str, list[int]] = defaultdict(list)
    for path in listed.below(layout.WORK):
        folders["/".join(path.split("/")[:2])].append(listed.files[path].bytes)
    for folder, sizes in sorted(folders.items()):
        yield Leftover(folder, folder.split("/")[1].partition("-")[0], len(sizes), sum(sizes))


def _leftover_notes(leftovers: Sequence[Leftover], root: str, is_read: bool) -> Iterator[str]:
    """Say who goes on with what was left; a folder without documents is none that the verb reads, but where it writes."""
    place = root if is_read else f"into {root}"
    for item in leftovers:
        held = f"{item.folder} holds {counted(item.files, 'file')}, {item.bytes / 1e6:,.1f} MB, of a {item.verb} that was stopped or still goes on: "
        if item.verb in IN_PYTHON_ALONE or item.folder.endswith("-collection"):
            yield f"{held}the next such call removes what was stopped"
        else:
            yield f"{held}the same dolma-dask {item.verb} {place} goes on from there and removes them"


def _row_notes(rows: Sequence[StatusRow]) -> Iterator[str]:
    for row in rows:
        what = f"{row.verb} of {row.writes}" if row.writes else row.verb
        if row.stopped:
            yield f"{what}: the last run was stopped or still goes on; the same command does only what is left"
        elif row.left:
            yield f"{what}: {counted(row.left, 'shard')} new, failed or left out; the same command does only these"
        if row.over_budget:
            yield (
                f"{what}: over budget, {row.over_budget}; mend the input, or allow more with the same command and a larger --max-bad-fraction. "
                "Verbs refuse to read it until then"
            )
        if row.is_removed:
            yield f"{what}: the attribute set was removed; the same command makes it again"
        if row.verb in names_of("page"):
            if row.changed:
                yield f"{what}: the page is older than what it shows, or was edited; the same command makes it again"
            elif not row.done and not row.stopped:
                yield f"{what}: the page is not there any more; the same command makes it again"
        else:
            yield from _changes(what, row)
        if row.unread:
            yield f"{what}: {counted(row.unread, 'shard')} not in it, new or left out by options; without these the same command makes it again"
        if row.touched:
            yield f"{what}: inputs of {counted(row.touched, 'shard')} have new time stamps and old sizes; the next run compares their bytes"
        if row.is_origin_gone:
            yield f"{what}: what it was made from is not there any more"
        if row.left_out:
            yield (
                f"{what}: {counted(row.left_out, 'file')} missing or broken at the source, listed in {layout.QUARANTINE}/{row.verb}/; --refresh looks for them again"
            )
        if row.problems:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in row.problems.items())
            yield f"{what}: {counted(sum(row.problems.values()), 'problem')} found ({kinds}); the same command names them"
        if row.bad_rows:
            yield f"{what}: {counted(row.bad_rows, 'record')} set aside in {layout.QUARANTINE}/{row.verb}/"


def _changes(what: str, row: StatusRow) -> Iterator[str]:
    if row.gone:
        yield f"{what}: {counted(row.gone, 'shard')} made from files that are gone; the same command with --overwrite removes what was made of them"
    if changed := row.changed - row.gone:
        how = " with --overwrite" if row.gone else ""
        yield f"{what}: {counted(changed, 'shard')} made from files that have changed; the same command{how} makes them again"


def _unproved(listed: Listing, known: Sequence[Journal]) -> Iterator[str]:
    """Name the attribute sets that no journal speaks of."""
    made = {path for journal in known for path in journal.by_file()}
    foreign = {unit for journal in known for unit in journal.foreign} - made
    accounted = made | foreign
    sets: defaultdict[str, int] = defaultdict(int)
    for path in listed.below(layout.ATTRIBUTES):
        if path not in accounted and path.count("/") > 1:
            sets[path.split("/")[1]] += 1
    if foreign:
        yield f"{counted(len(foreign), 'record')} of another journal format, never believed: the same commands make these files again"
    for name, count in sorted(sets.items()):
        yield f"attribute set {name}: {counted(count, 'file')} of another tool, in no journal; they are compared with the documents row by row"
