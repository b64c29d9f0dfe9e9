"""status: done, left and changed shards of a dataset, from its journals and a listing; no document is read.

Cost: one listing of the dataset and of what it was made from, and 30 us per shard and verb. A shard is done if its outputs are there with
their recorded sizes and its inputs have the sizes that were read; where only a time stamp differs, the next run compares bytes, and it
counts as done here.
"""

import os
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import Struct, structs

from dolma_dask.dataset import Dataset, version_root
from dolma_dask.display import byte_size, counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, RunRecord, garbage_notes, is_there, journals
from dolma_dask.options.base import WHAT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetLike, DatasetOptions, of_version, same
from dolma_dask.ownership import Ownership, void_claims
from dolma_dask.questions.status.estimated import ESTIMATED, EstimateRow, compare
from dolma_dask.registry import IN_PYTHON_ALONE
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Notes, Part
from dolma_dask.results.summary import Summary
from dolma_dask.results.table import Column, Kind, Table


@dataclass(frozen=True)
class StatusRow:
    """State of one verb and one of its outputs."""

    verb: str  # its name
    writes: str  # folder or file, relative to the dataset
    done: int  # shards that are finished, with outputs that are there and inputs that are what was read
    # shards that failed, were left out or were never begun; None if the last run was stopped and nothing tells how many there are
    left: int | None
    # shards that were made from files which have another size now or are gone, or whose attributes readers refuse; the same command makes them again
    changed: int
    # of `done`: shards whose inputs have the same sizes and other time stamps; the same command compares their bytes
    touched: int
    bad_rows: int  # records that were set aside
    bytes: int  # stored bytes of what it wrote
    seconds: float  # work of all shards, in seconds of one worker
    # when the last run began, and when the last shard was finished; seconds since 1970
    started: float | None
    finished: float | None
    stopped: bool  # the last run has not ended by itself: it was stopped, or it still goes on
    is_origin_gone: bool = False  # none of the files that it was made from is there any more
    over_budget: str = ""  # how many records are bad, if they are more than the last run that ended allowed
    left_out: int = 0  # of `done`: objects that their source does not have, or has only damaged
    problems: Mapping[str, int] = field(default_factory=dict)
    """Problems by kind that the newest check has found, of `validate`."""

    @property
    def is_open(self) -> bool:
        """True if the same command would do anything."""
        return (
            self.stopped or bool(self.left) or self.left is None or self.changed > 0 or bool(self.over_budget)
        )

    @property
    def state(self) -> str:
        """Word or two for a person."""
        if self.stopped:
            return "stopped or running"
        if self.over_budget:
            return "over budget"
        if self.is_open:
            return "to do"
        return counted(sum(self.problems.values()), "problem") if self.problems else "done"

    def to_json(self) -> dict[str, Any]:
        """Return the row with its state as JSON-able values."""
        return {**vars(self), "state": self.state}


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
    verb: str = "status"

    @property
    def exit_status(self) -> int:
        """0 if the commands that were run would find nothing to do, 1 if some shard is left, changed, a run was stopped or over budget, or a check found problems."""
        return 1 if self.leftovers or any(row.is_open or row.problems for row in self.rows) else 0

    def parts(self) -> Iterator[Part]:
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


FRESH, TOUCHED, GONE, CHANGED = 0, 1, 2, 3
"""Inputs are what was read; have other time stamps and the old sizes; none is there; some have other sizes or are gone."""


class Listing(Struct, dict=True):
    """The files below a root, listed once; raw files on a disk, which may be many, are looked at one by one."""

    root: str
    has_documents: bool = True
    skip: tuple[str, ...] = ()  # names of files below documents/ that are left out

    @cached_property
    def files(self) -> dict[str, FileInfo]:
        """By path relative to the root."""
        if files.is_web(self.root) or (not self.has_documents and files.is_local(self.root)):
            return {}
        listed = {info.path: info for info in files.list_files(self.root)}
        above = f"{layout.DOCUMENTS}/"
        skipped = {
            path
            for path in (listed if self.skip else ())
            if path.startswith(above) and layout.is_named(path.removeprefix(above), self.skip)
        }
        return {path: info for path, info in listed.items() if path not in skipped}

    def below(self, folder: str) -> list[str]:
        """Return the paths below a folder."""
        return [path for path in self.files if path.startswith(f"{folder}/")]

    @cached_property
    def shards(self) -> set[str]:
        """Stems of the document files, where records read any."""
        if not self.has_documents:
            return set()
        paths = (path.removeprefix(f"{layout.DOCUMENTS}/") for path in self.below(layout.DOCUMENTS))
        return {layout.stem_of(path) for path in paths if layout.suffix_of(path)}

    def state(self, record: Record) -> int:
        """Tell whether the inputs of a record are what was read; `GONE` if none of them is there. Servers are not asked: `download --refresh` does that."""
        if files.is_web(self.root):
            return FRESH
        states = [self.state_of(item) for item in record.inputs if _is_file(item.path)]
        if GONE in states:
            return GONE if states.count(GONE) == len(states) else CHANGED
        return max(states, default=FRESH)

    def state_of(self, item: InputRecord) -> int:
        """Tell the same of one input."""
        info = self.files.get(item.path)
        if info is None and files.is_local(self.root) and files.is_inside(item.path):
            info = files.stat(files.join(self.root, item.path))
        if info is None:
            return GONE
        if info.bytes != item.bytes:
            return CHANGED
        return FRESH if info.stamp and info.stamp == item.stamp else TOUCHED

    @cached_property
    def is_there(self) -> bool:
        """True if there is anything at all."""
        if files.is_local(self.root):
            return files.local_path(self.root).exists()
        return bool(self.files)


def reads_files(record: Record) -> bool:
    """Tell whether a record names any file that it was made from."""
    return any(_is_file(item.path) for item in record.inputs)


def _is_file(path: str) -> bool:
    """Tell whether an input is a file below the origin; some records name rows, or files of yet another dataset."""
    return "." in posixpath.basename(path) and ":" not in path.partition("/")[0]


_TABLES = ("tables", "signatures")
"""Options that name a folder of tables; records name its files ``<component>:<path>``."""


class Origins:
    """Places of each record's inputs: runs of one verb may have read from several roots."""

    def __init__(self, listed: Listing, runs: Sequence[RunRecord], records: Sequence[Record]) -> None:
        self._origins = {"": listed}
        self._root, self._runs = listed.root, runs
        paths = (item.path for record in records for item in record.inputs)
        self._read_documents = any(path.startswith(f"{layout.DOCUMENTS}/") for path in paths)

    def state(self, record: Record) -> int:
        """Tell whether the inputs of a record are what was read, its tables among them; where no tables are any more, it stands as it is."""
        state = self.of(record).state(record)
        tables = self._tables_of(record)
        if tables is None or not tables.is_there or state == GONE:
            return state
        parts = ((item, *item.path.partition(":")) for item in record.inputs if not _is_file(item.path))
        named = [structs.replace(item, path=path) for item, _, colon, path in parts if colon]
        states = (tables.state_of(item) for item in named)
        return max([state, *(CHANGED if each == GONE else each for each in states)])

    def _tables_of(self, record: Record) -> Listing | None:
        """Return the folder of tables that the newest run with these outputs has read; None if it has read none."""
        run = self._run_of(record)
        given = [run.params.get(name) for name in _TABLES] if run else []
        url = next((url for url in given if isinstance(url, str) and url), None)
        if url is None or files.is_web(url):
            return None
        return self._origins.setdefault(f"tables {url}", Listing(url, has_documents=False))

    def _run_of(self, record: Record | None) -> RunRecord | None:
        made_by = [run for run in self._runs if record is not None and record.unit.startswith(run.writes)]
        runs = made_by or self._runs
        return runs[-1] if runs else None

    def of(self, record: Record | None) -> Listing:
        """Return the files among which the inputs of a record are; those of the newest run for None."""
        run = self._run_of(record)
        origin = run.origin if run else ""
        if origin not in self._origins:
            is_local = files.is_local(self._root) and files.is_local(origin)
            root = posixpath.normpath(f"{self._root}/{origin}") if is_local else origin
            self._origins[origin] = Listing(root, self._read_documents)
        return self._origins[origin]


@dataclass(frozen=True, kw_only=True)
class StatusOptions(DatasetOptions):
    """Options of `status`."""

    source: Annotated[str | None, Opt("Name of the folder of a source; with `version`.", group=WHAT)] = None


@command
def status(
    dataset: Annotated[
        DatasetLike,
        Opt(
            "Folder or URL of a dataset, or of token shards. On the command line also a root of datasets: all below it are shown.",
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
    if not known and not documents:
        raise UsageError(
            f"{root} holds neither documents/ nor a journal; expected a dataset, or a folder that a verb wrote, such as corpus/wiki/v0."
        )
    rows = [row for journal in known for row in _rows_of(journal, listed)]
    rows.sort(key=lambda row: (row.started or 0.0, row.verb, row.writes))
    leftovers = tuple(_leftovers(listed))
    notes = (
        *_row_notes(rows),
        *_leftover_notes(leftovers, root),
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


def _rows_of(journal: Journal, listed: Listing) -> Iterator[StatusRow]:
    """Yield a row for each thing that a verb writes: what its runs have announced."""
    void, owned = void_claims(journal, listed.files), Ownership(journal)
    runs = [run for run in journal.runs if run.writes not in void]
    prefixes = sorted({prefix for run in runs for prefix in run.writes}, key=len, reverse=True)
    groups: dict[str, list[Record]] = {}
    sums: list[Record] = []
    for record in (one for one in journal.records.values() if not one.is_forgotten):
        if _is_sum(record):
            sums.append(record)
        else:
            groups.setdefault(owned.prefix_of(record.unit), []).append(record)
    for run in runs:
        begun = any(prefix in groups for prefix in run.writes)
        for prefix in run.writes:
            if prefix.endswith("/") or not begun:
                groups.setdefault(prefix, [])
    for name, records in sorted(groups.items()):
        mine = [record for record in sums if _is_about(record, name, prefixes)]
        yield _row(journal, name, records if name else _newest(records), mine, listed)


def _newest(records: Iterable[Record]) -> list[Record]:
    """Return the newest record of each shard, where nothing is written: `validate` looks at a shard beside several attribute sets."""
    newest = {record.shard: record for record in sorted(records, key=lambda record: record.finished)}
    return list(newest.values())


def _is_sum(record: Record) -> bool:
    """Tell whether a record sums up others, such as that of an attribute set: its name is none of a file."""
    return "." not in posixpath.basename(record.unit)


def _of(path: str, prefixes: Sequence[str]) -> str:
    """Return the longest announced prefix of a path."""
    return next((prefix for prefix in prefixes if path.startswith(prefix)), "")


def _is_about(record: Record, name: str, prefixes: Sequence[str]) -> bool:
    """Tell whether a record that sums up others speaks of what is counted under `name`."""
    paths = (record.unit, *(file.path for file in record.files))
    found = {_of(path, prefixes) for path in paths} - {""}
    return not found or name in found


def _row(
    journal: Journal, name: str, shards: Sequence[Record], sums: Sequence[Record], listed: Listing
) -> StatusRow:
    runs = [run for run in journal.runs if _concerns(run, name)]
    origins = Origins(listed, runs, [*shards, *sums])
    there = [record for record in shards if is_there(record, listed.files)]
    states = Counter(origins.state(record) for record in there if reads_files(record))
    above = Counter(origins.state(record) for record in sums if reads_files(record) and name)
    known = states + above
    is_gone = known[GONE] == known.total() > 0  # all at once: cleared away after the work, not changed
    changed = states[CHANGED] + (0 if is_gone else states[GONE])
    if (above[CHANGED] or above[GONE]) and not is_gone:
        changed = len(there)
    changed = max(changed, _unbelieved(there, [record for record in sums if record.unit == name]))
    newest = runs[-1] if runs else None
    ended = {run.writes: run for run in runs if run.finished}
    return StatusRow(
        verb=journal.verb,
        writes=_shown(name, shards),
        done=len(there) - changed,
        left=_left(shards, there, runs, origins),
        changed=changed,
        touched=min(states[TOUCHED], len(there) - changed),
        bad_rows=_bad_rows([*shards, *sums], listed),
        bytes=sum(file.bytes for record in shards for file in record.files if file.path in listed.files),
        seconds=sum(record.seconds for record in shards),
        started=newest.started if newest else None,
        finished=max((record.finished for record in shards), default=0.0) or None,
        stopped=_is_stopped(runs),
        is_origin_gone=is_gone,
        over_budget=next((run.over_budget for run in ended.values() if run.over_budget), ""),
        left_out=sum(bool(_LEFT_OUT & record.info.keys()) for record in there),
        problems=_problems(sums),
    )


def _unbelieved(shards: Sequence[Record], sums: Sequence[Record]) -> int:
    """Return how many shards have attributes of another run than the one whose attributes readers believe, such as those of a list that was refused."""
    keys = {record.info["key"] for record in sums if "key" in record.info}
    made = [record for record in shards if record.info.get("dataset_wide") is True]
    return sum(record.key not in keys for record in made) if keys else 0


def _problems(sums: Sequence[Record]) -> dict[str, int]:
    """Return the problems by kind of the newest report of a check."""
    reports = [record for record in sums if "valid" in record.info]
    newest = max(reports, key=lambda record: record.finished, default=None)
    found = newest.info.get("problems") if newest else None
    try:
        return {kind: item.count for kind, item in msgspec.convert(found or {}, dict[str, _Count]).items()}
    except msgspec.ValidationError:
        return {}  # no record of ours


class _Count(Struct):
    """The part of the problems of a kind that is counted."""

    count: int


_LEFT_OUT = {"missing", "broken"}
"""Keys in the record of an object that was not fetched."""


def _shown(name: str, shards: Sequence[Record]) -> str:
    """Return a prefix as people write it: ``part-*`` for files whose names begin so."""
    is_beginning = name and not name.endswith("/") and any(record.unit != name for record in shards)
    return f"{name}*" if is_beginning else name


def _concerns(run: RunRecord, name: str) -> bool:
    """Tell whether a run would write what is counted under `name`."""
    return not run.writes or name in run.writes


def _is_stopped(runs: Sequence[RunRecord]) -> bool:
    """Tell whether the newest of some runs, which went over the same again, has not ended by itself."""
    return bool(runs) and not runs[-1].finished


def _left(
    records: Sequence[Record], there: Sequence[Record], runs: Sequence[RunRecord], origins: Origins
) -> int | None:
    """Count what failed, was left out or never begun: against the listing of what was read, else by the last runs."""
    shards = origins.of(None).shards
    is_by_shard = not any(record.unit == record.shard for record in records)
    if shards and is_by_shard:
        return len(shards - {layout.stem_of(record.shard) for record in there})
    if _is_stopped(runs):
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
    folders: defaultdict[str, list[int]] = defaultdict(list)
    for path in listed.below(layout.WORK):
        folders["/".join(path.split("/")[:2])].append(listed.files[path].bytes)
    for folder, sizes in sorted(folders.items()):
        yield Leftover(folder, folder.split("/")[1].partition("-")[0], len(sizes), sum(sizes))


def _leftover_notes(leftovers: Sequence[Leftover], root: str) -> Iterator[str]:
    for item in leftovers:
        held = f"{item.folder} holds {counted(item.files, 'file')}, {item.bytes / 1e6:,.1f} MB, of a {item.verb} that has not ended: "
        if item.verb in IN_PYTHON_ALONE or item.folder.endswith("-collection"):
            yield f"{held}it goes on, or the next such call removes them"
        else:
            yield f"{held}the same dolma-dask {item.verb} {root} goes on from there and removes them"


def _row_notes(rows: Sequence[StatusRow]) -> Iterator[str]:
    for row in rows:
        what = f"{row.verb} of {row.writes}" if row.writes else row.verb
        if row.stopped:
            yield f"{what}: the last run was stopped or still goes on; the same command does only what is left"
        elif row.left:
            yield f"{what}: {counted(row.left, 'shard')} failed or left out; the same command does only these"
        if row.over_budget:
            yield (
                f"{what}: over budget, {row.over_budget}; mend the input, or allow more with the same command and a larger --max-bad-fraction. "
                "Verbs refuse to read it until then"
            )
        if row.changed:
            yield f"{what}: {counted(row.changed, 'shard')} made from files that have changed; the same command makes them again"
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


def _unproved(listed: Listing, known: Sequence[Journal]) -> Iterator[str]:
    """Name the attribute sets that no journal speaks of."""
    made = {path for journal in known for path in journal.by_file()}
    foreign = {unit for journal in known for unit in journal.foreign} - made
    sets: defaultdict[str, int] = defaultdict(int)
    for path in listed.below(layout.ATTRIBUTES):
        if path not in made | foreign and path.count("/") > 1:
            sets[path.split("/")[1]] += 1
    if foreign:
        yield f"{counted(len(foreign), 'record')} of another journal format, never believed: the same commands make these files again"
    for name, count in sorted(sets.items()):
        yield f"attribute set {name}: {counted(count, 'file')} of another tool, in no journal; they are compared with the documents row by row"
