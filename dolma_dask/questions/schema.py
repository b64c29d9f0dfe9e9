"""schema: the fields of documents and of their metadata, their kinds, and how often they are null or absent; all documents are read, in one pass.

Every value is looked at by the exact parser, 1 to 2 us for each: a few MB/s of short documents, 100 MB/s of long ones.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from msgspec import Struct

from dolma_dask.display import last_name, percent, shortened
from dolma_dask.engine.fold import fold
from dolma_dask.formats.documents import METADATA, RAW, STRINGS
from dolma_dask.formats.json.attributes import MAX_DEPTH
from dolma_dask.formats.json.exact import kind_of, parse_object
from dolma_dask.formats.metadata import AS_TEXT
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, Documents, QuestionOptions
from dolma_dask.ownership import dataset_notes
from dolma_dask.reading.reader import AlignedShard
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Fact, Facts, Notes, Part
from dolma_dask.results.table import Column, Table

MAX_FIELDS = 1000
"""Fields that are counted: where names are data, such as those of users, there is no end of them."""

MAX_EXAMPLE = 60
"""Characters of an example."""

_CALLED = {
    "a string": "text",
    "a number": "number",
    "a boolean": "bool",
    "an object": "object",
    "an array": "list",
    "null": "null",
}
_SCALARS = ("text", "number", "bool")


@dataclass(frozen=True)
class FieldRow:
    """A field of the documents."""

    name: str  # as people write it: metadata.page.hash
    kinds: Mapping[str, int]  # documents by kind of the value: text, number, bool, list, object
    null_share: float  # documents in which it is null
    absent_share: float  # documents without it
    example: str  # beginning of the first value
    column: str  # name of it as a column of `read_dataframe` and of rules; empty if it is none

    @property
    def written_kinds(self) -> str:
        """The kinds, the most frequent first, with their shares where there are several."""
        total = sum(self.kinds.values())
        ordered = sorted(self.kinds.items(), key=lambda item: (-item[1], item[0]))
        return ", ".join(
            name if len(ordered) == 1 else f"{name} {percent(count, total)}" for name, count in ordered
        )


class Schema(Answer, frozen=True):
    """Fields of a dataset; prints as a table. ``pd.DataFrame(schema.fields)`` has a row for each."""

    name: str
    documents: int
    bad_records: int  # documents that could not be read, which are in no other number
    fields: tuple[FieldRow, ...]
    notes: tuple[str, ...] = ()

    def parts(self) -> Iterator[Part]:
        """Yield the facts and the table."""
        facts = [Fact("documents", self.documents)]
        if self.bad_records:
            facts.append(Fact("bad records", self.bad_records))
        yield Facts(f"schema of {self.name}", facts)
        yield Table.of("fields", _COLUMNS, self.fields)
        yield Notes(self.notes)


_COLUMNS = (
    Column("field", "words", "name"),
    Column("kind", "words", "written_kinds"),
    Column("null", "share", "null_share"),
    Column("absent", "share", "absent_share"),
    Column("example", "words"),
    Column("as a column", "words", "column"),
)


class FieldCounts(Struct, frozen=True):
    """Counts of a field."""

    kinds: Counter[str] = Counter()  # of its values, null among them
    example: str = ""

    def __add__(self, other: "FieldCounts") -> "FieldCounts":
        return FieldCounts(self.kinds + other.kinds, self.example or other.example)


class SchemaSums(Struct, frozen=True):
    """Counts of some shards."""

    documents: int = 0
    bad_records: int = 0
    fields: Mapping[str, FieldCounts] = {}  # in the order in which they appear
    is_cut: bool = False  # there are more than `MAX_FIELDS`

    def __add__(self, other: "SchemaSums") -> "SchemaSums":
        both = {**self.fields}
        for name, counts in other.fields.items():
            if name in both or len(both) < MAX_FIELDS:
                both[name] = both.get(name, FieldCounts()) + counts
        is_cut = self.is_cut or other.is_cut or len(both.keys() | other.fields.keys()) > len(both)
        return SchemaSums(
            self.documents + other.documents, self.bad_records + other.bad_records, both, is_cut
        )


@dataclass(frozen=True)
class CountFields:
    """Counts the fields of each shard; see `dolma_dask.engine.fold.Fold`."""

    verb: ClassVar[str] = "schema"

    def start(self) -> SchemaSums:
        """Return the sums of no shards."""
        return SchemaSums()

    def count(self, shard: AlignedShard) -> SchemaSums:
        """Return the sums of one shard."""
        found = _Fields()
        bad = 0
        for block in shard.open():
            bad += len(block.bad)
            for line in block.batch.column(RAW).drop_null().to_pylist():
                found.add(line)
        return SchemaSums(found.documents, bad, found.counts(), found.is_cut)


class _Fields:
    """Fields of the lines of a shard."""

    def __init__(self) -> None:
        self.documents = 0
        self.is_cut = False
        self._kinds: dict[str, Counter[str]] = {}
        self._examples: dict[str, str] = {}

    def add(self, line: bytes) -> None:
        """Count the fields of a document."""
        self.documents += 1
        for name, value in _values(line):
            kinds = self._kinds.get(name)
            if kinds is None:
                if len(self._kinds) >= MAX_FIELDS:
                    self.is_cut = True
                    continue
                kinds = self._kinds[name] = Counter()
            kind = _CALLED[kind_of(value)]
            kinds[kind] += 1
            if kind != "null" and name not in self._examples:
                self._examples[name] = _beginning(value)

    def counts(self) -> dict[str, FieldCounts]:
        """Return what was counted."""
        return {name: FieldCounts(kinds, self._examples.get(name, "")) for name, kinds in self._kinds.items()}


def _beginning(value: bytes) -> str:
    return shortened(value[: 4 * MAX_EXAMPLE].decode(errors="ignore"), MAX_EXAMPLE)


def _values(line: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a document with the JSON text of their values; of the metadata those inside of objects, too."""
    for name, value in parse_object(line).items():
        yield name, value
        if name == METADATA:
            yield from _inner(name, value)


def _inner(name: str, value: bytes, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    if not value.startswith(b"{") or depth > MAX_DEPTH:
        return
    for key, inner in parse_object(value).items():
        yield f"{name}.{key}", inner
        yield from _inner(f"{name}.{key}", inner, depth + 1)


@dataclass(frozen=True, kw_only=True)
class SchemaOptions(DatasetOptions, QuestionOptions):
    """Options of `schema`."""


@command
def schema(dataset: Documents, /, *, options: SchemaOptions) -> Schema:
    """List the fields of documents and of their metadata: kinds, how often they are null or absent, an example, and their name as a column.

    Example: dolma-dask schema corpus/wiki/v0

    Returns
    -------
    Schema

    Raises
    ------
    StageError
        Some shards could not be read.

    Examples
    --------
    >>> dk.schema("corpus/v0", prune=4)  # doctest: +SKIP
    """
    part = options.selected(options.open(dataset))
    shards = [
        AlignedShard(part.root, shard, (RAW,), default_source=part.source, identities=True)
        for shard in part.shards
    ]
    sums = fold(CountFields(), shards, options)
    rows = tuple(_row(name, counts, sums.documents) for name, counts in sums.fields.items())
    notes = [*dataset_notes(part)]
    if any(row.column.endswith(AS_TEXT) for row in rows):
        notes.append(f"{AS_TEXT} behind the name of a field reads values of any kind as text")
    if sums.is_cut:
        notes.append(f"there are more fields: the first {MAX_FIELDS:,} are counted")
    return Schema(last_name(part.root), sums.documents, sums.bad_records, rows, tuple(notes))


def _row(name: str, counts: FieldCounts, documents: int) -> FieldRow:
    kinds: dict[str, int] = {kind: count for kind, count in counts.kinds.items() if kind != "null"}
    nulls = counts.kinds["null"]
    return FieldRow(
        name,
        kinds,
        nulls / documents,
        (documents - nulls - sum(kinds.values())) / documents,
        counts.example,
        _column(name, kinds),
    )


def _column(name: str, kinds: Mapping[str, Any]) -> str:
    """Return how a field is named as a column; empty where it cannot be one."""
    if "." not in name:
        return name if name in (*STRINGS, METADATA) else ""
    is_one = len(kinds) == 1 and next(iter(kinds)) in _SCALARS
    return (name if is_one else f"{name}{AS_TEXT}") if kinds else ""
