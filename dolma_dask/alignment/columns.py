"""Columns of a dataset by name: fields of documents and of their metadata, and attributes, in lockstep and proved.

Only what is asked is read: attributes alone leave the documents closed wherever the journal proves that they belong together
(`dolma_dask.alignment.rows`).
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from dolma_dask.alignment.catalog import Catalog, check_clash
from dolma_dask.alignment.parts import AlignedPart, RowRange
from dolma_dask.alignment.rows import AlignedShard, ReadState
from dolma_dask.alignment.sets import AttributeSets, AttributeSource, shard_inputs
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.errors import AlignmentError, DataError, ExpressionError, SchemaError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.documents import METADATA, STRINGS
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.metadata import is_field, metadata_kinds
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import BadRecord, Block
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.mixing.values import unknown_name

Kind = Literal["text", "document", "spans", "number", "bool", "string", "dict"]
"""What a column holds: "text" for a string of the documents, else see `dolma_dask.formats.json.attributes.AttributeKind`."""

SAMPLED_SHARDS = 8
"""Shards, evenly spread, whose first rows tell the kinds of the fields of the metadata; the others are asked if a field is in none of these."""

SAMPLED_AT_ONCE = 64
"""Further shards that are asked before one looks whether all fields are found."""

SAMPLING_THREADS = 8

SAMPLED_ROWS = 1000


@dataclass(frozen=True)
class ColumnWork:
    """What a worker needs to read some columns of one shard, or of a part of it; see `Columns`.

    Attributes
    ----------
    names : tuple of str
        Columns in their order.
    documents : tuple of str
        Those of them that are columns of documents.
    fields : Mapping[str, AttributeKind]
        Those that are fields of the metadata.
    sources : tuple of AttributeSource
        Attribute files, with the keys to read from each.
    part : RowRange or None
        Which rows; None: all, with all that is proved of a whole file.
    checksum : bool
        See `dolma_dask.alignment.rows.AlignedShard`.
    """

    root: str
    shard: Shard
    names: tuple[str, ...]
    documents: tuple[str, ...]
    fields: Mapping[str, AttributeKind]
    sources: tuple[AttributeSource, ...]
    default_source: str | None = None
    part: RowRange | None = None
    checksum: bool = True

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """What is read, relative to the dataset."""
        return shard_inputs(self.shard, self.sources)

    def open(self, *, max_record_bytes: int = MAX_RECORD_BYTES) -> "ColumnReader":
        """Return the rows as an iterable of batches."""
        return ColumnReader(self, max_record_bytes)


@dataclass
class ColumnReader:
    """The asked columns of one shard, as batches of rows in order.

    Columns have the types that `Columns.kinds` tells: large_string for "text" and "string", float64 for "document", "number" and "dict",
    bool, and ``list<struct<start, end, score>>``; null where a document has no value, or could not be read.

    Attributes
    ----------
    bad : tuple of BadRecord
        Records of the last batch that could not be read, as far as documents were.
    first_unreadable : int or None
        Row of the first document of the last batch that could not be read, now or when the attributes were made that are read alone.
    state : ReadState
        Complete after the last batch.

    Raises
    ------
    AlignmentError, StaleAttributesError, BadRecordError, CorruptFileError, SchemaError
        While iterating.
    """

    work: ColumnWork
    max_record_bytes: int = MAX_RECORD_BYTES
    bad: tuple[BadRecord, ...] = ()
    first_unreadable: int | None = None
    state: ReadState = field(default_factory=ReadState)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except AlignmentError as error:
            self._raise_if_unreadable(error)
            raise

    def _raise_if_unreadable(self, error: AlignmentError) -> None:
        """Raise what is wrong with a document if that is why its row differs: attributes were made when it could be read."""
        work, row = self.work, error.details.get("row")
        if not isinstance(row, int):
            return
        documents = DocumentFile(
            files.join(work.root, layout.document_path(work.shard.path)),
            ("id", "source"),
            source=work.default_source,
            max_record_bytes=self.max_record_bytes,
            checksum=False,
        )
        for block in documents:
            for record in block.bad:
                if record.row == row:
                    raise AlignmentError(f"{record}. {error}", **error.details) from error
            if block.first_row + block.num_rows > row:
                return

    def _batches(self) -> Iterator[pa.RecordBatch]:
        work = self.work
        for aligned in self._rows():
            self.bad = aligned.block.bad
            self.first_unreadable = _first_unreadable(aligned.block)
            batch = aligned.block.batch
            columns = [
                aligned.attributes[name] if name in aligned.attributes else batch.column(name)
                for name in work.names
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=self._schema(columns))

    def _schema(self, columns: Sequence[pa.Array]) -> pa.Schema:
        return pa.schema([(name, column.type) for name, column in zip(self.work.names, columns, strict=True)])

    def _rows(self) -> AlignedShard:
        work = self.work
        rows = AlignedShard(
            work.root,
            work.shard,
            work.documents,
            work.sources,
            work.default_source,
            self.max_record_bytes,
            fields=work.fields,
            lean=True,
            checksum=work.checksum,
            state=self.state,
        )
        return rows if work.part is None else AlignedPart.of(rows, work.part)


def _first_unreadable(block: Block) -> int | None:
    if block.bad:
        return block.bad[0].row
    ids = block.batch.column("id") if "id" in block.batch.schema.names else None
    if ids is None or not ids.null_count:
        return None
    return block.first_row + int(pc.index(pc.is_null(ids), True).as_py())


@dataclass(frozen=True)
class Columns:
    """Columns of a dataset that were found; see `find_columns`.

    Attributes
    ----------
    dataset : Dataset
        All of its shards.
    names : tuple of str
        Full names, in the order asked.
    kinds : Mapping[str, Kind]
        What each holds.
    fields : Mapping[str, AttributeKind]
        Those of the metadata.
    sets : AttributeSets or None
        The attribute sets that the others are read from.
    """

    dataset: Dataset
    names: tuple[str, ...]
    kinds: Mapping[str, Kind]
    fields: Mapping[str, AttributeKind]
    sets: AttributeSets | None

    def work(self, shard: Shard) -> ColumnWork:
        """Return what a worker needs for `shard`."""
        return ColumnWork(
            self.dataset.root,
            shard,
            self.names,
            tuple(name for name in self.names if name in (*STRINGS, METADATA)),
            self.fields,
            self.sets.sources(shard, self.names) if self.sets else (),
            self.dataset.source,
        )

    def params(self) -> dict[str, Any]:
        """Return what decides the values, besides the files."""
        sets = list(self.sets.files) if self.sets else []
        return {"columns": list(self.names), "attributes": sets, "source": self.dataset.source}


def find_columns(dataset: Dataset, names: Sequence[str], attributes: Sequence[str] = ()) -> Columns:
    """Find columns by name.

    Parameters
    ----------
    dataset : Dataset
        As it was listed; its attribute sets are listed now.
    names : sequence of str
        ``id text source added created metadata`` (its JSON text), ``metadata.<field>``, and attribute keys, for which a unique ending is enough.
    attributes : sequence of str
        Attribute sets to look in; by default all. Only those that have one of the names are read.

    Raises
    ------
    ExpressionError
        There is no such column, or a short name stands for several.
    UsageError
        A name was asked twice, an attribute set is unknown, or a key stands in two sets.
    MissingAttributesError
        A shard lacks an attribute file.
    """
    fields = find_fields(dataset, [name for name in names if is_field(name)])
    keys = [name for name in names if not is_field(name) and name not in (*STRINGS, METADATA)]
    full, sets = find_keys(Catalog(dataset), keys, attributes) if keys else ({}, None)
    found = tuple(full.get(name, name) for name in names)
    for name in found:
        if found.count(name) > 1:
            raise UsageError(f"column {name!r} is asked twice; expected each once.", name=name)
    kinds: dict[str, Kind] = {name: "text" for name in found if name in (*STRINGS, METADATA)}
    kinds.update(fields)
    kinds.update({name: sets.kinds[sets.owner(name)][name] for name in full.values()} if sets else {})
    return Columns(dataset, found, {name: kinds[name] for name in found}, fields, sets)


def find_keys(
    catalog: Catalog, names: Sequence[str], attributes: Sequence[str] = ()
) -> tuple[dict[str, str], AttributeSets]:
    """Return the full name of each attribute key, and the sets that have them; see `find_columns`."""
    sets = tuple(attributes) or catalog.dataset.with_current_attributes().attributes
    if attributes:
        catalog.open(attributes)  # all that were named have to be there
    looked = {name: catalog.keys(name) for name in sets}
    keys = {name: found for name, (found, _) in looked.items()}
    known = [*STRINGS, METADATA, *sorted(frozenset().union(*keys.values()))]
    try:
        full = {name: full_name(name, known) for name in names}
    except ExpressionError as error:
        unread = [f"{name} could not be read ({why})" for name, (_, why) in looked.items() if why]
        if not unread:
            raise
        raise ExpressionError(f"{error}. Attribute set {'; '.join(unread)}", **error.details) from error
    check_clash(keys, sorted(full.values()))
    return full, catalog.open([name for name in sets if not keys[name].isdisjoint(full.values())])


def full_name(name: str, known: Sequence[str]) -> str:
    """Return the column that a name stands for: its own, or the only one that ends in it behind ``__``.

    Raises
    ------
    ExpressionError
        There is none, or there are several.
    """
    if name in known:
        return name
    ends = sorted(column for column in known if column.endswith(f"__{name}"))
    if len(ends) > 1:
        raise ExpressionError(
            f"{name} is short for several columns: {', '.join(ends)}; write one of them", name=name
        )
    if not ends:
        raise ExpressionError(unknown_name(name, known), name=name)
    return ends[0]


def find_fields(dataset: Dataset, names: Sequence[str]) -> dict[str, AttributeKind]:
    """Return the kinds of fields of the metadata, as the first rows of some shards show them; of all shards while a field is not found.

    Raises
    ------
    ExpressionError
        None of the first rows of all shards has such a field.
    SchemaError
        Its values are of different kinds.
    """
    if not names:
        return {}
    found = _sampled_kinds(dataset, names)
    kinds: dict[str, AttributeKind] = {}
    for name in names:
        if name not in found:
            raise ExpressionError(
                f"{unknown_name(name, found)} (fields of the metadata in the first rows)", name=name
            )
        if len(found[name]) > 1:
            raise SchemaError(
                f"{name} is a {' and a '.join(sorted(found[name]))} in different documents of {dataset.root}; expected one kind in all. "
                "Convert the field, or use another.",
                name=name,
            )
        (kinds[name],) = found[name]
    return kinds


def _sampled_kinds(dataset: Dataset, names: Sequence[str]) -> dict[str, set[AttributeKind]]:
    """Return the kinds of all fields that were seen on the way to the asked ones."""
    found: dict[str, set[AttributeKind]] = {}
    with ThreadPoolExecutor(SAMPLING_THREADS) as pool:
        for shards in _rounds(dataset.shards):
            for kinds in pool.map(partial(_sample, dataset), shards):
                for name, kind in kinds.items():
                    found.setdefault(name, set()).add(kind)
            if found.keys() >= set(names):
                break
    return found


def _rounds(shards: Sequence[Shard]) -> Iterator[Sequence[Shard]]:
    """Yield some shards from all over the listing, then the others in their order."""
    count = len(shards)
    spread = {number * count // SAMPLED_SHARDS for number in range(SAMPLED_SHARDS)} if count else set()
    yield [shards[number] for number in sorted(spread)]
    others = [shard for number, shard in enumerate(shards) if number not in spread]
    for first in range(0, len(others), SAMPLED_AT_ONCE):
        yield others[first : first + SAMPLED_AT_ONCE]


def _sample(dataset: Dataset, shard: Shard) -> dict[str, AttributeKind]:
    """Return the fields of the metadata in the first rows of a shard; what is wrong with the file, its reader says."""
    documents = DocumentFile(
        files.join(dataset.root, layout.document_path(shard.path)), (METADATA,), source=dataset.source
    )
    try:
        block = next(iter(documents), None)
    except DataError:
        return {}
    return metadata_kinds(block.batch.column(METADATA).slice(0, SAMPLED_ROWS)) if block else {}
