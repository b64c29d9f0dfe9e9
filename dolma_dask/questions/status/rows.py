"""Rows of status: what each verb has done of each of its outputs, from the records of its journal and a listing."""

import posixpath
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct

from dolma_dask.display import counted
from dolma_dask.formats import layout
from dolma_dask.journal import Chosen, Journal, Record, RunRecord, is_there
from dolma_dask.ownership import Ownership, void_claims
from dolma_dask.questions.status.inputs import CHANGED, GONE, TOUCHED, Listing, Origins, reads_files


@dataclass(frozen=True)
class StatusRow:
    """State of one verb and one of its outputs."""

    verb: str  # its name
    writes: str  # folder or file, relative to the dataset
    done: int  # shards that are finished, with outputs that are there and inputs that are what was read
    # shards that failed, were left out or were never begun; None if the last run was stopped and nothing tells how many there are
    left: int | None
    # shards that were made from files which have another size now or are gone, or whose attributes readers refuse
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
    is_removed: bool = (
        False  # all attribute files of the set were removed since it was made: nothing is missed of it
    )
    gone: int = 0  # of `changed`: shards that were made from files of which none is there; with --overwrite the same command removes them
    left_out: int = 0  # of `done`: objects that their source does not have, or has only damaged
    unread: int = (
        0  # shards that are not in the one file that is made of all of them: new ones, or left out by options
    )
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
        if self.is_removed:
            return "removed"
        return counted(sum(self.problems.values()), "problem") if self.problems else "done"

    def to_json(self) -> dict[str, Any]:
        """Return the row with its state as JSON-able values."""
        return {**vars(self), "state": self.state}


def rows_of(journal: Journal, listed: Listing) -> Iterator[StatusRow]:
    """Yield a row for each thing that a verb writes: what its runs have announced."""
    void, owned = void_claims(journal, listed.files), Ownership(journal)
    runs = [run for run in journal.runs if run.writes not in void]
    prefixes = sorted({prefix for run in runs for prefix in run.writes}, key=len, reverse=True)
    # of units that lie in none of these: `remove` announces its tombstones, and has a record of each file that it searched
    elsewhere = "" if any(not run.writes for run in runs) else next((run.writes[0] for run in runs), "")
    groups: dict[str, list[str]] = {}  # units
    sums: list[Record] = []
    for record in (one for one in journal.records.values() if not one.is_forgotten):
        if _is_sum(record):
            sums.append(record)
        elif (prefix := owned.prefix_of(record.unit)) or not elsewhere or record.unit in listed.files:
            groups.setdefault(prefix or elsewhere, []).append(record.unit)
    for run in runs:
        begun = any(prefix in groups for prefix in run.writes)
        for prefix in run.writes:
            if prefix.endswith("/") or not begun:
                groups.setdefault(prefix, [])
    for name, units in sorted(groups.items()):
        records = Chosen(journal.records, units).values()
        mine = [record for record in sums if _is_about(record, name, prefixes)]
        row = _row(journal, name, records if name else _newest(records, listed), mine, listed)
        if _is_removed(journal, name, records, listed):
            row = replace(row, done=0, left=0, changed=0, touched=0, gone=0, over_budget="", is_removed=True)
        yield row


def _is_removed(journal: Journal, name: str, records: Iterable[Record], listed: Listing) -> bool:
    """Tell whether an attribute set is not there any more, of which the newest run has ended, and made all or some of it."""
    runs = [run for run in journal.runs if _concerns(run, name)]
    if not name.startswith(f"{layout.ATTRIBUTES}/") or not runs or not runs[-1].finished:
        return False
    newest = runs[-1]
    was_made = any(
        record.files and (not newest.is_open or record.finished >= newest.started) for record in records
    )
    return was_made and not any(path.startswith(name) for path in listed.files)


def _newest(records: Iterable[Record], listed: Listing) -> list[Record]:
    """Return the newest record of each shard that is there, where nothing is written: `validate` looks at a shard beside several attribute sets."""
    records = (record for record in records if layout.document_path(record.shard) in listed.files)
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
    journal: Journal, name: str, shards: Collection[Record], sums: Sequence[Record], listed: Listing
) -> StatusRow:
    runs = [run for run in journal.runs if _concerns(run, name)]
    origins = Origins(listed, runs, chain(shards, sums))
    keys = {record.info["key"] for record in sums if record.unit == name and "key" in record.info}
    found = _Counted.of(shards, listed, origins, keys)
    above = Counter(origins.state(record) for record in sums if reads_files(record) and name)
    known = found.states + above
    is_gone = known[GONE] == known.total() > 0  # all at once: cleared away after the work, not changed
    gone = 0 if is_gone else found.states[GONE]
    changed = found.states[CHANGED] + gone
    if (above[CHANGED] or above[GONE]) and not is_gone:
        changed = found.there
    changed = max(changed, found.unbelieved)
    newest = runs[-1] if runs else None
    ended = {run.writes: run for run in runs if run.finished}
    return StatusRow(
        verb=journal.verb,
        writes=_shown(name, shards),
        done=found.there - changed,
        left=_left(len(shards), found, runs, origins),
        changed=changed,
        touched=min(found.states[TOUCHED], found.there - changed),
        bad_rows=found.bad_rows + sum(_bad_rows(record, listed) for record in sums),
        bytes=found.bytes,
        seconds=found.seconds,
        started=newest.started if newest else None,
        finished=found.finished or None,
        stopped=_is_stopped(runs),
        is_origin_gone=is_gone,
        over_budget=next((run.over_budget for run in ended.values() if run.over_budget), ""),
        gone=gone,
        left_out=found.left_out,
        unread=_unread(name, shards, origins),
        problems=_problems(sums),
    )


@dataclass
class _Counted:
    """Sums over the shards of a row; records are looked at one by one, since there may be millions."""

    there: int = 0
    stems: set[str] = field(default_factory=set)  # of the shards that are there
    states: Counter[int] = field(default_factory=Counter)  # of their inputs
    # with attributes of another run than the one whose attributes readers believe, such as those of a list that was refused
    unbelieved: int = 0
    left_out: int = 0
    bad_rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    finished: float = 0.0
    is_by_shard: bool = True  # no unit has the name of its shard

    @classmethod
    def of(
        cls, shards: Iterable[Record], listed: Listing, origins: Origins, keys: Collection[str]
    ) -> "_Counted":
        """Count records; `keys` are those that readers believe."""
        found = cls()
        for record in shards:
            found.bytes += sum(file.bytes for file in record.files if file.path in listed.files)
            found.seconds += record.seconds
            found.finished = max(found.finished, record.finished)
            found.bad_rows += _bad_rows(record, listed)
            found.is_by_shard &= record.unit != record.shard
            if is_there(record, listed.files):
                found._add(record, origins, keys)
        return found

    def _add(self, record: Record, origins: Origins, keys: Collection[str]) -> None:
        self.there += 1
        self.stems.add(layout.stem_of(record.shard))
        if reads_files(record):
            self.states[origins.state(record)] += 1
        is_of_all = record.info.get("dataset_wide") is True
        self.unbelieved += bool(keys) and is_of_all and record.key not in keys
        self.left_out += bool(_LEFT_OUT & record.info.keys())


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


def _shown(name: str, shards: Iterable[Record]) -> str:
    """Return a prefix as people write it: ``part-*`` for files whose names begin so."""
    is_beginning = name and not name.endswith("/") and any(record.unit != name for record in shards)
    return f"{name}*" if is_beginning else name


def _concerns(run: RunRecord, name: str) -> bool:
    """Tell whether a run would write what is counted under `name`."""
    return not run.writes or name in run.writes


def _is_stopped(runs: Sequence[RunRecord]) -> bool:
    """Tell whether the newest of some runs, which went over the same again, has not ended by itself."""
    return bool(runs) and not runs[-1].finished


def _left(count: int, found: _Counted, runs: Sequence[RunRecord], origins: Origins) -> int | None:
    """Count what failed, was left out or never begun: against the listing of what was read, else by the last runs."""
    shards = origins.of(None).shards
    if shards and found.is_by_shard:
        return len(shards - found.stems)
    if _is_stopped(runs):
        return None
    newest = {run.writes: run for run in runs}
    return count - found.there + sum(run.missing for run in newest.values())


def _unread(name: str, records: Collection[Record], origins: Origins) -> int:
    """Count the shards that are not in a file that is made of all; which of them options left out, its record does not say."""
    record = next(iter(records)) if len(records) == 1 else None
    if record is None or record.unit != name:
        return 0
    above = f"{layout.DOCUMENTS}/"
    read = {
        layout.stem_of(item.path.removeprefix(above)) for item in record.inputs if item.path.startswith(above)
    }
    return len(origins.of(record).shards - read) if read else 0


def _bad_rows(record: Record, listed: Listing) -> int:
    """Count the records in quarantine files that are still there."""
    return sum(
        file.rows for file in record.files if layout.is_set_aside(file.path) and file.path in listed.files
    )
