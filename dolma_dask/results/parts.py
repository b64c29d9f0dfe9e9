"""Parts of an outcome, beside its tables: titles, facts, sentences, notes, failures and texts."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from dolma_dask.results.table import Kind, Table, written


class Fact(NamedTuple):
    """A label with a typed value."""

    label: str
    value: str | float | None
    kind: Kind = "words"

    @property
    def text(self) -> str:
        """The value as people read it."""
        return written(self.value, self.kind)


def indented(facts: Iterable[Fact]) -> list[Fact]:
    """Return facts that belong to the one above them."""
    return [fact._replace(label=f"  {fact.label}" if fact.label else "") for fact in facts]


class Heading(Struct, frozen=True):
    """A line above other parts."""

    text: str


class Facts(Struct, frozen=True):
    """Facts below a title."""

    title: str
    facts: Sequence[Fact]


class Sentences(Struct, frozen=True):
    """Sentences, one in a line."""

    lines: Sequence[str]


class Notes(Struct, frozen=True):
    """Notes that a person should read."""

    lines: Sequence[str]


class Failures(Struct, frozen=True):
    """Things that failed: name, error and message of each."""

    rows: Sequence[tuple[str, str, str]]
    noun: str = "shard"


class Listing(Struct, frozen=True):
    """Lines that stand as they are, such as a script; notebooks fold those that have a title."""

    title: str
    lines: Sequence[str]


Part = Heading | Facts | Sentences | Notes | Failures | Listing | Table
"""A part of an outcome. A table without rows, and a part without lines, is not shown."""
