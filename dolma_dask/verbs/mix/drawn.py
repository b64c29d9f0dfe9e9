"""The result of downsampling: what was wanted and is kept of each group, and where it is cut."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dolma_dask.display import isolated, shown_name
from dolma_dask.results.summary import Recorded
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.downsampling import Cut, GroupCuts

PARAMETER = "downsampled"
"""Parameter of the run of a mix that holds the result."""


class Drawn(msgspec.Struct, frozen=True):
    """Amount that is kept of one group: in the unit, and as documents."""

    wanted: int | None  # None: all of it
    kept: int
    of: int
    documents: int
    documents_of: int
    left_out_from: tuple[str, str, int] | None  # hash, shard and row of the first document that is not kept

    @property
    def cut(self) -> Cut | None:
        """The first document that is not kept."""
        if self.left_out_from is None:
            return None
        own, shard, row = self.left_out_from
        return Cut(int(own, 16), shard, row)


class DrawnTable(msgspec.Struct, frozen=True):
    """Amounts that are kept of all groups."""

    unit: str
    by: str | None
    seed: int
    groups: dict[str, Drawn]

    @classmethod
    def from_json(cls, known: Any) -> "DrawnTable":
        """Return what `to_json` gave."""
        return msgspec.convert(known, cls)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        known: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return known

    def table(self) -> Table:
        """Return what is wanted and kept of each group."""
        columns = (
            Column("group", "name"),
            *(Column(f"{self.unit} {word}") for word in ("wanted", "kept", "there")),
            *(Column(f"documents {word}") for word in ("kept", "there") if self.unit != "documents"),
        )
        rows = [
            (label or "(none)", one.wanted, one.kept, one.of, one.documents, one.documents_of)
            for label, one in self.groups.items()
        ]  # fmt: skip
        return Table(
            f"downsampled: {self.unit}" + (f" by {isolated(self.by)}" if self.by else ""),
            columns,
            [row[: len(columns)] for row in rows],
            "Of what rules and filters keep, the first by a hash of source and id, until the next document would exceed the number; without a number a group is kept whole.",
        )

    def notes(self, named: Sequence[str]) -> Iterator[str]:
        """Yield what a person should know: groups with less than was wanted, and those that are none."""
        for label, drawn in self.groups.items():
            if drawn.wanted is not None and drawn.of < drawn.wanted:
                group = "" if self.by is None else f"{self.by} {label!r}: "
                yield f"downsample: {group}{drawn.wanted:,} {self.unit} were wanted, there are {drawn.of:,}, and all are kept"
        for label in named:
            if label not in self.groups:
                yield f"downsample: no document that the mix keeps has {self.by} {label!r}"

    def cuts(self) -> GroupCuts:
        """Return what workers have to know."""
        kept, there = (
            sum(getattr(one, name) for one in self.groups.values()) for name in ("documents", "documents_of")
        )
        cuts = {label: drawn.cut for label, drawn in self.groups.items()}
        return GroupCuts(self.by, self.seed, cuts, kept / there if there else 1.0)


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the table of a mix for a report, if it was downsampled."""
    if PARAMETER in step.params:
        table = DrawnTable.from_json(step.params[PARAMETER]).table()
        title = f"{shown_name(step.root)}, {table.title.removeprefix('downsampled: ')}"
        yield replace(table, section="Downsampling", title=title)
