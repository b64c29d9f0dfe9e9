"""Places of documents: what `find` answers, and how it is shown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dolma_dask.display import counted, listed
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Notes, Part, Sentences
from dolma_dask.results.table import Column, Table


class DocumentPlace(Struct, frozen=True):
    """A row of a dataset."""

    dataset: str  # URL of its root
    path: str  # of the shard, relative to the dataset
    row: int
    id: str
    source: str | None  # None: the document has none


class AttributePlace(Struct, frozen=True):
    """A row of an attribute file."""

    dataset: str
    name: str  # of the set
    path: str
    row: int
    values: Mapping[str, Any]  # by key: the value of a document, or the number of its spans
    is_stale: bool = False  # whether the row is of another document


class TokenPlace(Struct, frozen=True):
    """Neighbouring tokens of a document in a row of a token file."""

    folder: str  # URL of the folder of token files
    file: str  # relative to the folder
    row: int
    place: int  # first position in the row
    size: int  # tokens
    start: int  # first token, of those of the document
    source: str | None
    path: str  # of the shard, relative to the dataset that was read
    document: int  # row in the shard


class ClusterPlace(Struct, frozen=True):
    """A member of a cluster of similar documents."""

    dataset: str  # that has the table
    name: str  # of the attribute set
    of_dataset: str  # of the member, as the table names it
    shard: str
    row: int
    source: str | None
    size: int  # of the cluster
    survivor: bool
    cluster: str  # its first document: shard and row


class QuarantinePlace(Struct, frozen=True):
    """A record that was set aside."""

    folder: str  # URL of the dataset or folder of token files
    path: str  # of the file of bad records
    line: int
    url: str  # where the record was read
    row: int
    reason: str


class DroppedPlace(Struct, frozen=True):
    """A line of a list of dropped documents."""

    folder: str
    path: str
    line: int
    source: str | None
    shard: str
    row: int
    reasons: tuple[str, ...]


class IndexPlace(Struct, frozen=True):
    """An index of `dedupe` into which the dataset of a document was put."""

    index: str
    dataset: str


class FoundId(Struct, frozen=True):
    """The places of an id."""

    id: str
    documents: tuple[DocumentPlace, ...] = ()
    attributes: tuple[AttributePlace, ...] = ()
    tokens: tuple[TokenPlace, ...] = ()
    clusters: tuple[ClusterPlace, ...] = ()
    quarantine: tuple[QuarantinePlace, ...] = ()
    dropped: tuple[DroppedPlace, ...] = ()
    indexes: tuple[IndexPlace, ...] = ()

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__struct_fields__[1:])


class Found(Answer, frozen=True):
    """Places of documents; prints as a table for each kind of place."""

    roots: tuple[str, ...]
    ids: tuple[FoundId, ...]
    notes: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Ids that are nowhere."""
        return tuple(one.id for one in self.ids if not one)

    @property
    def exit_status(self) -> int:
        """1 if an id is nowhere."""
        return 1 if self.missing else 0

    def parts(self) -> Iterator[Part]:
        yield Heading(f"{counted(len(self.ids), 'id')} below {', '.join(self.roots)}")
        for one in self.ids:
            yield from tables_of(one, self.roots, f"{one.id}: " if len(self.ids) > 1 else "")
        if self.missing:
            shown = [repr(one) for one in self.missing[:10]]
            yield Sentences(
                [f"not found: {listed(shown)}{', ...' if len(self.missing) > len(shown) else ''}"]
            )
        yield Notes(self.notes)


_VALUES = 5
"""Attributes of a set that a terminal shows."""


def tables_of(found: FoundId, roots: Sequence[str], title: str = "") -> Iterator[Table]:
    """Yield the tables of the places of an id."""

    def near(name: str) -> Column:
        return Column(name, "name", lambda item: seen(getattr(item, name), roots))

    row = Column("row")
    each: dict[str, tuple[Column, ...]] = {
        "documents": (near("dataset"), Column("path", "name"), row, Column("source", "name")),
        "attributes": (near("dataset"), Column("set", "name", "name"), row, Column("values", "words", _summary)),
        "tokens": (
            near("folder"), Column("file", "name"), row, Column("tokens", "words", _in_row), Column("of the document", "words", _in_document),
            Column("from", "name", lambda item: f"{item.path} row {item.document:,}"),
        ),
        "clusters": (
            near("dataset"), Column("set", "name", "name"), Column("cluster", "name"), Column("size"),
            Column("", "words", lambda item: "survivor" if item.survivor else "copy"),
        ),
        "quarantine": (near("folder"), Column("path", "name"), Column("line"), Column("reason", "words"), Column("from", "name", lambda item: f"{item.url} row {item.row:,}")),
        "dropped": (near("folder"), Column("path", "name"), Column("line"), Column("by", "words", lambda item: ", ".join(item.reasons))),
        "indexes": (near("index"), near("dataset")),
    }  # fmt: skip
    for name, columns in each.items():
        yield Table.of(f"{title}{name}", columns, getattr(found, name))


def seen(url: str, roots: Sequence[str]) -> str:
    """Return a URL as seen from the root that it is below."""
    for root in roots:
        if url == root:
            return "."
        if url.startswith(f"{root.rstrip('/')}/"):
            return url[len(root.rstrip("/")) + 1 :]
    return url


def _summary(item: AttributePlace) -> str:
    if item.is_stale:
        return "of another document: the documents were written again"
    shown = [
        f"{key.rpartition('__')[2]} {_value(value)}" for key, value in list(item.values.items())[:_VALUES]
    ]
    return ", ".join([*shown, *(["..."] if len(item.values) > _VALUES else [])]) or "nothing"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _in_row(item: TokenPlace) -> str:
    return span(item.place, item.size)


def _in_document(item: TokenPlace) -> str:
    return span(item.start, item.size)


def span(start: int, size: int) -> str:
    """Return the first and the last of some numbers."""
    return f"{start:,} to {start + size - 1:,}" if size else "none"
