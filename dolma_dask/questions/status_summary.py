"""What `status` answers: a row per verb and what it writes, and what else lies in the dataset."""

import html
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from dolma_dask.display import counted, html_table, text_table

_HEADING = (
    "verb",
    "writes",
    "done",
    "left",
    "changed",
    "bad rows",
    "MB",
    "seconds",
    "last finished",
    "state",
)
_UNKNOWN = "?"


@dataclass(frozen=True)
class StatusRow:
    """Where one verb stands with one thing that it writes.

    Attributes
    ----------
    verb : str
        Its name.
    writes : str
        Folder or file, relative to the dataset.
    done : int
        Shards that are finished, with outputs that are there and inputs that are what was read.
    left : int or None
        Shards that failed, were left out or were never begun; None if the last run was stopped and nothing tells how many there are.
    changed : int
        Shards that were made from files which have another size now or are gone; the same command makes them again.
    touched : int
        Of `done`: shards whose inputs have the same sizes and other time stamps; the same command compares their bytes.
    bad_rows : int
        Records that were set aside.
    bytes : int
        Stored bytes of what it wrote.
    seconds : float
        Work of all shards, in seconds of one worker.
    started, finished : float or None
        When the last run began, and when the last shard was finished; seconds since 1970.
    stopped : bool
        The last run has not ended by itself: it was stopped, or it still goes on.
    is_origin_gone : bool
        None of the files that it was made from is there any more.
    """

    verb: str
    writes: str
    done: int
    left: int | None
    changed: int
    touched: int
    bad_rows: int
    bytes: int
    seconds: float
    started: float | None
    finished: float | None
    stopped: bool
    is_origin_gone: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the same command would do anything."""
        return self.stopped or bool(self.left) or self.left is None or self.changed > 0

    @property
    def state(self) -> str:
        """What a person should know of it, in a word or two."""
        if self.stopped:
            return "stopped or running"
        return "to do" if self.is_open else "done"

    def cells(self) -> tuple[str, ...]:
        """Return its row of the table."""
        return (
            self.verb,
            self.writes,
            f"{self.done:,}",
            _UNKNOWN if self.left is None else f"{self.left:,}",
            f"{self.changed:,}",
            f"{self.bad_rows:,}",
            f"{self.bytes / 1e6:,.1f}",
            f"{self.seconds:,.1f}",
            _time(self.finished),
            self.state,
        )


@dataclass(frozen=True)
class Leftover:
    """A folder of work under way.

    Attributes
    ----------
    folder : str
        Relative to the dataset.
    verb : str
        Whose it is.
    files, bytes : int
        What lies in it.
    """

    folder: str
    verb: str
    files: int
    bytes: int


@dataclass(frozen=True, repr=False)
class StatusSummary:
    """What is done, left and changed in a dataset; prints as a table.

    Attributes
    ----------
    root : str
        Of the dataset.
    shards, bytes : int
        Its document files, and their stored bytes.
    rows : tuple of StatusRow
        In the order in which the verbs were first run.
    leftovers : tuple of Leftover
        What exchanges that were stopped have left.
    notes : tuple of str
        What a person should know.
    """

    root: str
    shards: int
    bytes: int
    rows: tuple[StatusRow, ...]
    leftovers: tuple[Leftover, ...] = ()
    notes: tuple[str, ...] = ()
    verb: str = "status"

    @property
    def exit_status(self) -> int:
        """0 if the commands that were run would find nothing to do, 1 if some shard is left, changed, or a run was stopped."""
        return 1 if self.leftovers or any(row.is_open for row in self.rows) else 0

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON-able values; times are seconds since 1970."""
        return {
            "verb": self.verb,
            "root": self.root,
            "shards": self.shards,
            "bytes": self.bytes,
            "rows": [{**asdict(row), "state": row.state} for row in self.rows],
            "leftovers": [asdict(item) for item in self.leftovers],
            "notes": list(self.notes),
            "exit_status": self.exit_status,
        }

    def _table(self) -> Sequence[tuple[str, ...]]:
        return [_HEADING, *(row.cells() for row in self.rows)]

    def _head(self) -> str:
        return f"status of {self.root}: {counted(self.shards, 'document file')}, {self.bytes / 1e6:,.1f} MB stored"

    def __str__(self) -> str:
        table = [f"  {line}" for line in text_table(self._table())] if self.rows else []
        return "\n".join([self._head(), *table, *(f"  note: {note}" for note in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"{html_table(self._head(), self._table())}{notes}"


def _time(seconds: float | None) -> str:
    """Return a moment in UTC to the second."""
    return "" if not seconds else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
