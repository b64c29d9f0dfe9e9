"""The result of downsampling, or of a budget: what was wanted and is kept of each group, and where it is cut."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dolma_dask.display import counted, isolated, shown_name
from dolma_dask.results.summary import Recorded
from dolma_dask.results.table import Column, Table
from dolma_dask.rules.budgets import unit_name
from dolma_dask.rules.downsampling import Cut, GroupCuts

PARAMETER = "downsampled"
"""Parameter of the run of a mix that holds the result."""

_EPOCHS = (
    "Of what rules and filters keep, all documents of a group as often as that goes, and then once more the first by a hash of source and id, until the next "
    "would exceed what is wanted."
)


class Drawn(msgspec.Struct, frozen=True, omit_defaults=True):
    """Amount that is kept of one group: in the unit, and as documents."""

    wanted: int | None  # None: all of it
    kept: int
    of: int
    documents: int
    documents_of: int
    left_out_from: (
        tuple[str, str, int] | None
    )  # hash, shard and row of the first document that is not kept, or not once more
    full_epochs: int = 0  # times that all of it is taken besides

    @property
    def epochs(self) -> float:
        """Times that the group is taken, by what is counted."""
        return self.kept / self.of if self.of else 0.0

    @property
    def cut(self) -> Cut | None:
        """The first document that is not kept."""
        if self.left_out_from is None:
            return None
        own, shard, row = self.left_out_from
        return Cut(int(own, 16), shard, row)


class DrawnTable(msgspec.Struct, frozen=True, omit_defaults=True):
    """Amounts that are kept of all groups."""

    unit: str
    by: str | None
    seed: int
    groups: dict[str, Drawn]
    max_epochs: int | None = None  # of a budget; None: downsampling

    @classmethod
    def from_json(cls, known: Any) -> "DrawnTable":
        """Return what `to_json` gave."""
        return msgspec.convert(known, cls)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-able values."""
        known: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return known

    @property
    def is_budget(self) -> bool:
        """True if documents may be taken several times."""
        return self.max_epochs is not None

    @property
    def what(self) -> str:
        """Name of the option by which it was requested."""
        return "budget" if self.is_budget else "downsample"

    def table(self) -> Table:
        """Return what is wanted and kept of each group."""
        by = f" by {isolated(self.by)}" if self.by else ""
        if self.is_budget:
            items = [(label, one, self._sum) for label, one in self.groups.items()]
            return Table.of(f"budget: {unit_name(self.unit)}{by}", self._columns, items, _EPOCHS)
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
            f"downsampled: {self.unit}{by}",
            columns,
            [row[: len(columns)] for row in rows],
            "Of what rules and filters keep, the first by a hash of source and id, until the next document would exceed the number; without a number a group is kept whole.",
        )

    @property
    def _columns(self) -> Sequence[Column]:
        """Columns of the table of a budget, of a label, its amounts and the sum of all."""
        unit = unit_name(self.unit)
        documents = (
            Column("documents there", of=lambda item: item[1].documents_of),
            Column("documents taken", of=lambda item: item[1].documents),
        )
        return (
            Column("group", "name", lambda item: item[0] or "(none)"),
            Column(f"{unit} wanted", of=lambda item: item[1].wanted),
            Column(f"{unit} there", of=lambda item: item[1].of),
            Column(f"{unit} taken", of=lambda item: item[1].kept),
            Column("share", "share", lambda item: item[1].kept / item[2] if item[2] else None),
            Column("epochs", "real", lambda item: item[1].epochs),
            *(documents if unit != "documents" else ()),
        )

    @property
    def _sum(self) -> int:
        return sum(one.kept for one in self.groups.values())

    def notes(self, named: Sequence[str]) -> Iterator[str]:
        """Yield what a person should know: groups with less than was wanted, those that are none, and those without a share."""
        if self.is_budget:
            out = {label: one.documents_of for label, one in self.groups.items() if not one.documents}
            if out:
                groups = ", ".join(
                    f"{label or '(none)'} ({counted(own, 'document')})" for label, own in out.items()
                )
                yield f"budget: nothing is taken of {self.by} {groups}"
            return
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
        taken = {label: one for label, one in self.groups.items() if one.documents or not self.is_budget}
        cuts = {label: one.cut for label, one in taken.items()}
        epochs = {label: one.full_epochs for label, one in taken.items()}
        return GroupCuts(self.by, self.seed, cuts, kept / there if there else 1.0, epochs)


def recorded_tables(step: Recorded) -> Iterator[Table]:
    """Yield the table of a mix for a report, if it was downsampled or has a budget."""
    if PARAMETER in step.params:
        drawn = DrawnTable.from_json(step.params[PARAMETER])
        table = drawn.table()
        title = f"{shown_name(step.root)}, {table.title.partition(': ')[2]}"
        yield replace(table, section="Budget" if drawn.is_budget else "Downsampling", title=title)
