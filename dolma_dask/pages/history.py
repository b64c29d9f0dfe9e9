"""Origin of a dataset, read from its journals: which verbs ran, on what, and what its documents were selected from.

A mixed dataset names the one it was made from, so that the history is followed back to the first. Numbers are sums over the records of shards that
are there and whose files are still those of the record. Most verbs keep the names of shards, so that a shard can be followed through all versions.
Where mix cuts files by size, or shuffles, every new file depends on all old ones: they are followed together, by the one record that names what all
of them were made of. Cost: one listing per dataset and some 10 us per record.
"""

import math
import posixpath
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Dataset, as_recorded, open_dataset
from dolma_dask.display import UNKNOWN, counted, last_name, shown_name
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Journal, Record, RunRecord, garbage_notes, is_there, journals
from dolma_dask.ownership import void_claims
from dolma_dask.registry import names_of

MAX_LINKS = 100
"""Datasets that a history is followed through."""

SELECTING = ("where", "include", "exclude", "sample_rate", "min_text_length", "downsample", "max_epochs")
"""Parameters of a run that leave documents out."""


TOKEN_VERBS = ("ragged", "hdf5")
"""Verbs that make token shards."""


def stem(shard: str) -> str:
    """Return the name of a shard in every version: its path without suffix and without the number of a part."""
    return layout.stem_of(layout.unit_of(shard))


def public_name(dataset: str) -> str:
    """Return `dataset` without folders of an absolute local path, and without a user name or password in a URL."""
    parts = urlsplit(dataset) if "://" in dataset else None
    if parts is None or parts.scheme == "file":
        path = (dataset if parts is None else parts.path).rstrip("/")
        return path.rpartition("/")[2] if path.startswith("/") else path
    return dataset.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)


class Step(Struct, frozen=True):
    """One verb of the history."""

    verb: str
    root: str  # where it wrote
    runs: tuple[RunRecord, ...]  # every start of it, oldest first
    # its finished units whose files are there as they were written; files that were cut by size are one unit, all together
    records: tuple[Record, ...]
    stems: frozenset[str] | None = None  # shards that it read and that are shown, by `stem`; None: all

    @property
    def packed(self) -> tuple[Record, ...]:
        """Records of files that were cut by size, or whose rows were shuffled."""
        return tuple(record for record in self.records if is_packed(record))

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of the newest run."""
        return self.runs[-1].params if self.runs else {}

    def params_of(self, folder: str) -> Mapping[str, Any]:
        """Return parameters of the newest run that wrote into a folder of the dataset, such as that of one set of flags."""
        return next((run.params for run in reversed(self.runs) if folder in run.writes), {})

    @property
    def current(self) -> tuple[Record, ...]:
        """Records that were made as the newest of them was: with the same rule and options."""
        if not self.records:
            return ()
        key = max(self.records, key=lambda record: record.finished).key
        return tuple(record for record in self.records if record.key == key)


class History(Struct, frozen=True):
    """The steps that led to a dataset and to token shards made of it."""

    steps: tuple[Step, ...]  # in the order in which they ran
    parent: str | None = None  # root of the dataset that the newest mix selected from, if it is there
    notes: tuple[str, ...] = ()  # what could not be followed
    line: tuple[str, ...] = ()  # roots of the datasets, from the first version on

    def of_shards(self, root: str, shards: Collection[str], is_all: bool) -> "History":
        """Return the history of some shards of the dataset `root`; what speaks of all of a dataset stays.

        If `is_all`, these are all that are shown: then files that were cut by size stay too, even if some that they were made of are gone.
        """
        known = self._stems(root, frozenset(map(stem, shards)), is_all)
        return replace(self, steps=tuple(self._of_stems(step, known) for step in self.steps))

    def _stems(self, root: str, shown: frozenset[str], is_all: bool) -> dict[str, frozenset[str]]:
        """Return the stems of each dataset of the line that belong to those shown; they differ where files were cut by size."""
        known = {root: shown}
        at = self.line.index(root) if root in self.line else 0
        for child, parent in zip(self.line[at:0:-1], self.line[at - 1 :: -1], strict=False):
            known[parent] = self.made_of(child, known[child])
        for parent, child in zip(self.line[at:], self.line[at + 1 :], strict=False):
            packed = self._packed(child)
            made = (
                stems_of(record.files)
                for record in packed
                if is_all or stems_of(record.inputs) <= known[parent]
            )
            known[child] = frozenset().union(*made) if packed else known[parent]
        return known

    def made_of(self, root: str, shown: frozenset[str]) -> frozenset[str]:
        """Return the stems of what some shards of a version were made of: their own, but for files that were cut by size."""
        packed = self._packed(root)
        made_of = (stems_of(record.inputs) for record in packed if stems_of(record.files) <= shown)
        return frozenset().union(*made_of) if packed else shown

    def _packed(self, root: str) -> tuple[Record, ...]:
        step = self.step(root, "mix")
        return step.packed if step else ()

    def _of_stems(self, step: Step, known: Mapping[str, frozenset[str]]) -> Step:
        """Return a step with the records of some shards, by the root of their dataset; tokens are of the last, or of what it was cut from."""
        lasts = self.line[-2:] if self.line and self._packed(self.line[-1]) else self.line[-1:]
        roots = (step.root,) if step.root in known else lasts
        stems = frozenset[str]().union(*(known[root] for root in roots if root in known))
        before = self.line[max(self.line.index(step.root) - 1, 0)] if step.root in self.line else ""
        read = stems | known.get(before, frozenset()) if step.verb == "mix" else stems
        records = tuple(record for record in step.records if _is_of(record, stems))
        return replace(step, records=records, stems=read)

    def step(self, root: str, verb: str) -> Step | None:
        """Return what `verb` did at `root`."""
        return next((step for step in self.steps if (step.root, step.verb) == (root, verb)), None)

    def created(self) -> str:
        """Return when the last step ended, in UTC; a dash if no journal knows."""
        started = (run.started for step in self.steps for run in step.runs)
        finished = (record.finished for step in self.steps for record in step.records)
        newest = max((*started, *finished), default=0.0)
        return datetime.fromtimestamp(newest, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if newest else UNKNOWN


def is_packed(record: Record) -> bool:
    """Tell whether a record is of document files that were cut by size, all together: its unit is the beginning of their paths."""
    return record.unit.endswith("/") and not record.unit.startswith(f"{layout.ATTRIBUTES}/")


def stems_of(listed: Sequence[FileRecord | InputRecord]) -> frozenset[str]:
    """Return the shards among the files of a record, or among its inputs, by `stem`."""
    start = f"{layout.DOCUMENTS}/"
    return frozenset(stem(item.path.removeprefix(start)) for item in listed if item.path.startswith(start))


def _is_of(record: Record, stems: frozenset[str]) -> bool:
    if is_packed(record):
        return stems_of(record.files) <= stems
    return record.shard == record.unit or stem(record.shard) in stems


def read_history(root: str, tokens: Sequence[str] = ()) -> History:
    """Follow the journals of a dataset back to its first version, and forward to token shards.

    Raises `UsageError`: a folder of `tokens` has no journal.
    """
    roots, notes = lineage(root)
    steps, outdated, damaged = list[Step](), list[str](), list[str]()
    for one in roots:
        known = _journals(one)
        damaged += [f"{shown_name(one)}: {note}" for note in garbage_notes(known)]
        found = _steps(one, known)
        looked = [step for step in found if _looked_at_others(step, found)]
        steps += [step for step in found if step not in looked]
        outdated += [
            f"{step.verb} of {shown_name(one)} looked at documents that were made again since, or before all were there: its result is left out"
            for step in looked
        ]
    steps += [_token_step(folder) for folder in dict.fromkeys(map(files.normalize, tokens))]
    parent = roots[-2] if len(roots) > 1 else None
    return History(tuple(steps), parent, (*notes, *damaged, *outdated), tuple(roots))


def _looked_at_others(step: Step, steps: Sequence[Step]) -> bool:
    """Tell whether validate read other documents than those that `steps`, of the same dataset, have made, or before one ended that completed them."""
    if step.verb != "validate":
        return False
    read = {item.path: item.checksum for record in step.records for item in record.inputs}
    made = {file.path: file.checksum for other in steps for record in other.records for file in record.files}
    if any(made.get(path, checksum) != checksum for path, checksum in read.items()):
        return True
    looked = max((record.finished for record in step.records), default=0.0)
    makers = [other for other in steps if other.verb in names_of("documents")]
    later = (record for other in makers for record in other.records if record.finished > looked)
    has_more = any(
        file.path.startswith(f"{layout.DOCUMENTS}/") and file.path not in read
        for record in later
        for file in record.files
    )
    return has_more or any(_gaps(other, looked) != _gaps(other, math.inf) for other in makers)


def _gaps(step: Step, moment: float) -> dict[tuple[str, ...], int]:
    """Return what was incomplete at a moment: the folders of a run, and how many units it had left undone, -1 while it went on."""
    newest = {run.writes: run for run in step.runs if run.started <= moment}
    undone = {
        writes: run.missing if run.finished and run.finished <= moment else -1
        for writes, run in newest.items()
    }
    return {writes: units for writes, units in undone.items() if units}


_VERSIONS = ("mix", "transform")
"""Verbs that make a version of another one."""


def lineage(root: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the roots from the first version to `root`, and a note if the first cannot be reached."""
    roots = [root]
    while len(roots) < MAX_LINKS:
        runs = [run for verb in _VERSIONS for run in Journal(roots[-1], verb).runs]
        recorded = runs[-1].params.get("from") if runs else None
        if not isinstance(recorded, str):
            break
        parent = _parent(roots[-1], recorded, runs[-1].origin)
        if parent is None:
            note = f"{shown_name(roots[-1])} was made from {shown_name(recorded)}, which is not there any more: what came before is left out"
            return roots[::-1], (note,)
        if parent in roots:
            break
        roots.append(parent)
    return roots[::-1], ()


def _parent(root: str, recorded: str, origin: str) -> str | None:
    """Return the dataset that `root` was mixed from, or None if it is gone; `origin` is its path from `root` if both were moved together."""
    beside = files.join(root.rpartition("/")[0], last_name(recorded))
    moved = (
        [posixpath.normpath(f"{root}/{origin}")] if origin.startswith(".") and files.is_local(root) else []
    )
    return next((url for url in (*moved, recorded, beside) if url != root and _has_documents(url)), None)


def _has_documents(root: str) -> bool:
    return any(layout.suffix_of(info.path) for info in files.list_files(files.join(root, layout.DOCUMENTS)))


def _journals(root: str) -> list[Journal]:
    pages = names_of("page")  # a page does not show how it was made itself
    return [journal for journal in journals(root) if journal.verb not in pages]


def _steps(root: str, known: Sequence[Journal]) -> list[Step]:
    kept = [item for item in known if item.runs or item.records]
    folders = {path.split("/")[0] for journal in kept for path in journal.by_file()}
    listed = {
        f"{name}/{info.path}": info
        for name in folders
        if not name.startswith("_")
        for info in files.list_files(files.join(root, name))
    }
    first = names_of("documents")  # others follow in the order in which they were first run
    kept.sort(key=lambda item: (item.verb not in first, item.runs[0].started if item.runs else 0.0))
    return [_step(journal, listed) for journal in kept]


def _token_step(folder: str) -> Step:
    found = (Journal(folder, verb) for verb in TOKEN_VERBS)
    journal = next((one for one in found if one.runs or one.records), None)
    if journal is None:
        raise UsageError(
            f"{folder} has no journal of ragged or hdf5 ({layout.JOURNAL}/); expected a folder with token shards. Name the folder that "
            "`dolma-dask ragged` or `dolma-dask hdf5` wrote, or leave it out of --tokens."
        )
    return _step(journal, {info.path: info for info in files.list_files(folder)})


def token_origin(folder: str) -> str:
    """Return the dataset that token shards were made from.

    Raises `UsageError`: the folder has no journal of them.
    """
    return str(_token_step(folder).params.get("from", ""))


def _step(journal: Journal, listed: Mapping[str, FileInfo]) -> Step:
    there = [record for record in journal.records.values() if is_there(record, listed)]
    records = sorted(_together(there), key=lambda record: record.unit.encode())
    void = void_claims(journal, listed)
    runs = tuple(run for run in journal.runs if run.writes not in void)
    return Step(journal.verb, journal.root, runs, tuple(records))


def _together(records: Sequence[Record]) -> list[Record]:
    """Return records, of files that were cut by size only that of all of them, which knows what they were made of."""
    ended = {record.unit: record.finished for record in records}
    packed = [record for record in records if is_packed(record)]
    parts = {file.path for record in packed for file in record.files}
    kept = [record for record in records if is_packed(record) or record.unit not in parts]
    for number, record in enumerate(kept):
        if is_packed(record):  # it ended with the last of its files
            last = max((ended.get(file.path, 0.0) for file in record.files), default=0.0)
            kept[number] = replace(record, finished=max(record.finished, last))
    return kept


class Origin(Struct, frozen=True):
    """Documents that a selection was made from."""

    dataset: Dataset  # the shards that were selected from; the dataset itself if no earlier version is known
    step: Step | None = None  # what selected
    notes: tuple[str, ...] = ()
    gone: int = 0  # shards that were selected from and are not there any more

    @property
    def where(self) -> str | None:
        """The rule as the user wrote it."""
        where = self.step.params.get("where") if self.step else None
        return where if isinstance(where, str) else None

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attribute sets that were read for the rule, by the records."""
        records = self.step.current if self.step else ()
        paths = [item.path.split("/") for record in records for item in record.inputs]
        return tuple(sorted({parts[1] for parts in paths if parts[0] == layout.ATTRIBUTES}))


def find_origin(listed: Dataset, history: History, source: str | None) -> Origin:
    """Find what the documents of a dataset were selected from.

    Raises `UsageError`: token shards in `history` belong to other documents.
    """
    stems = frozenset(stem(shard.path) for shard in listed.shards)
    made_of = history.made_of(listed.root, stems)
    _check_tokens(listed.root, stems | made_of, history)
    step = history.step(listed.root, "mix")
    if step is None:
        return _of_tokens(listed, _selecting_step(listed, history))
    if history.parent is None:
        return Origin(listed)
    reading = as_recorded(step.params)
    parent = open_dataset(history.parent, **reading | ({"source": source} if source else {}))
    names = shown_name(parent.root), shown_name(listed.root)
    if _is_cut(step) and not step.packed:
        why = "its files are not all there as one mix has written them: which documents they are of {} cannot be told"
        return Origin(listed, notes=(f"{names[1]}: {why.format(names[0])}",))
    shards = tuple(shard for shard in parent.shards if stem(shard.path) in made_of)
    if not shards:
        return Origin(listed, notes=("{} has none of the shards of {} any more".format(*names),))
    gone = len(made_of - {stem(shard.path) for shard in shards})
    notes = [*_missing_notes(len(parent.shards) - len(shards), *names)]
    if gone:
        are = "is" if gone == 1 else "are"
        notes.append(
            f"{counted(gone, 'shard')} of {names[0]} that {names[1]} was made of {are} not there any more"
        )
    return Origin(replace(parent, shards=shards), step, tuple(notes), gone)


def _of_tokens(listed: Dataset, step: Step | None) -> Origin:
    """Return what token shards were made of straight from a dataset: those of its shards that they are there of."""
    made = {stem(record.shard) for record in step.records} if step is not None else set()
    shards = tuple(shard for shard in listed.shards if stem(shard.path) in made)
    if step is None or not shards:
        return Origin(listed)
    missing = len(listed.shards) - len(shards)
    return Origin(
        replace(listed, shards=shards),
        step,
        _missing_notes(missing, shown_name(listed.root), shown_name(step.root)),
    )


def _is_cut(step: Step) -> bool:
    """Tell whether the newest mix cut its files by size."""
    return any(step.params.get(name) for name in ("max_size", "shards", "shuffle"))


def _missing_notes(missing: int, parent: str, child: str) -> tuple[str, ...]:
    if not missing:
        return ()
    return (
        f"{counted(missing, 'shard')} of {parent} {'is' if missing == 1 else 'are'} not in {child} and not counted",
    )


def _selecting_step(listed: Dataset, history: History) -> Step | None:
    """Return the step that made tokens straight from a selection of `listed`, if one did."""
    ragged = (
        step for step in history.steps if step.verb == "ragged" and any(map(step.params.get, SELECTING))
    )
    name = last_name(listed.root)
    return next((step for step in ragged if last_name(str(step.params.get("from"))) == name), None)


def _check_tokens(root: str, stems: frozenset[str], history: History) -> None:
    for step in history.steps:
        made_from = [record.shard for record in step.records if record.shard != record.unit]
        is_tokens = step.verb in TOKEN_VERBS
        if is_tokens and made_from and not any(stem(shard) in stems for shard in made_from):
            raise UsageError(
                f"{step.root} was made from other documents: its first shard {made_from[0]!r} is not in {root}; expected token shards "
                "of this dataset. Leave it out of --tokens."
            )
