"""The receipt of a takedown: what was changed, what was searched and held nothing, what is left and what to do about it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dolma_dask.display import counted
from dolma_dask.results.parts import Fact
from dolma_dask.results.summary import Summary
from dolma_dask.results.table import Column, Table
from dolma_dask.verbs.remove.changes import Change

_CHANGED = (
    Column("file", "name", of="path"),
    Column("what", "words"),
    Column("rows before", of=lambda change: change.before.rows),
    Column("rows after", of=lambda change: change.after.rows),
    Column("bytes before", "size", of=lambda change: change.before.bytes or None),
    Column("bytes after", "size", of=lambda change: change.after.bytes or None),
    Column("notes", "words", of=lambda change: "; ".join(change.notes)),
)
_LEFT = (
    Column("file", "name", of="path"),
    Column("why", "words"),
    Column("what to do", "words", of="advice"),
)
_STALE = (Column("file", "name", of="path"), Column("what to know", "words", of="why"))

_SHOWN = 5


class Left(Struct, frozen=True):
    """A file that may still hold what was taken down, or that tells of it; with what to do."""

    path: str
    why: str
    advice: str = ""


class Removal(Summary, frozen=True):
    """The outcome of a takedown; `done` counts files that were written again.

    Attributes
    ----------
    changes : tuple of Change
        Each file that was written again, with rows and checksums before and after.
    searched : dict of str to int
        Files that were looked into and hold none of the documents, by kind.
    left : tuple of Left
        Files that may hold some of them still, and what to do: the exit status is 1.
    stale : tuple of Left
        What lines up, and says something else once it is made again.
    unmatched : tuple of str
        Entries of the list that no document below the root has had.
    receipt : str
        File with all of this; empty: nothing was changed.
    """

    entries: int = 0
    tombstones: int = 0  # new ones
    changes: tuple[Change, ...] = ()
    searched: Mapping[str, int] = {}
    left: tuple[Left, ...] = ()
    stale: tuple[Left, ...] = ()
    unmatched: tuple[str, ...] = ()
    receipt: str = ""

    @property
    def exit_status(self) -> int:
        """1 if something is left."""
        return 1 if self.left else super().exit_status

    def facts(self) -> list[Fact]:
        return [fact._replace(label="files") if fact.label == "shards" else fact for fact in super().facts()]

    def own_facts(self) -> Iterator[Fact]:
        yield Fact("entries in the list", self.entries, "integer")
        yield Fact("new tombstones", self.tombstones, "integer")
        for what, count in _sums(self.changes).items():
            yield Fact(f"{what}: rows removed", count, "integer")
        yield Fact("files searched in vain", sum(self.searched.values()), "integer")
        if self.unmatched:
            yield Fact("nobody has", len(self.unmatched), "integer")
            yield from (Fact("", repr(one)) for one in self.unmatched[:_SHOWN])
        if self.receipt:
            yield Fact("receipt", self.receipt)

    def tables(self) -> Sequence[Table]:
        return [
            Table.of("files written again", _CHANGED, [one for one in self.changes if one.what != "beside"]),
            Table.of("left to do", _LEFT, self.left),
            Table.of("stale", _STALE, self.stale),
        ]

    def to_json(self) -> dict[str, Any]:
        known = super().to_json()
        known["changes"] = [
            {
                "path": change.path,
                "what": change.what,
                "rows": [change.before.rows, change.after.rows],
                "bytes": [change.before.bytes, change.after.bytes],
                "checksum": [change.before.checksum, change.after.checksum],
                "notes": list(change.notes),
            }
            for change in self.changes
        ]
        return known


def _sums(changes: Iterable[Change]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for change in changes:
        if change.what != "beside":
            sums[change.what] += change.removed
    return +sums


def told(left: Sequence[Left]) -> tuple[str, ...]:
    """Say in a note that something is left."""
    if not left:
        return ()
    return (
        f"{counted(len(left), 'file')} may still hold what was taken down, first {left[0].path}: {left[0].advice}",
    )
