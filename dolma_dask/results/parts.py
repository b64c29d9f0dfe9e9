"""Parts of an outcome, beside its tables: titles, facts, sentences, notes, failures and texts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    return [fact._replace(label=f"  {fact.label}") for fact in facts]


@dataclass(frozen=True)
class Heading:
    """A line above other parts."""

    text: str


@dataclass(frozen=True)
class Facts:
    """Facts below a title."""

    title: str
    facts: Sequence[Fact]


@dataclass(frozen=True)
class Sentences:
    """Sentences, one in a line."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Notes:
    """Notes that a person should read."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Failures:
    """Things that failed: name, error and message of each."""

    rows: Sequence[tuple[str, str, str]]
    noun: str = "shard"


@dataclass(frozen=True)
class Listing:
    """Lines that stand as they are, such as a script; notebooks fold those that have a title."""

    title: str
    lines: Sequence[str]


Part = Heading | Facts | Sentences | Notes | Failures | Listing | Table
"""A part of an outcome. A table without rows, and a part without lines, is not shown."""
