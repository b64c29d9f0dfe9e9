"""A shard of documents and its attribute files, read side by side in blocks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pyarrow as pa

from dolma_dask.alignment.follower import Follower
from dolma_dask.alignment.sets import AttributeSource
from dolma_dask.alignment.unchanged import is_still
from dolma_dask.dataset import Shard
from dolma_dask.errors import AlignmentError, SchemaError
from dolma_dask.formats import layout
from dolma_dask.formats.digests import RowDigest
from dolma_dask.formats.documents import METADATA
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.metadata import scan_metadata
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import BLOCK_BYTES, MAX_RECORD_BYTES


@dataclass(frozen=True)
class AlignedBlock:
    """Rows of documents with the attributes of the same rows.

    Attributes
    ----------
    block : Block
        Documents.
    attributes : Mapping[str, pyarrow.Array]
        The asked keys and fields of the metadata, one value per row.
    """

    block: Block
    attributes: Mapping[str, pa.Array]


@dataclass
class ReadState:
    """What is known after a shard was read.

    ``inputs`` are the files read; ``unproved`` the attribute sets without a valid record. The digests are empty where the columns
    that they are made of were not read.
    """

    rows: int = 0
    ids_digest: str = ""
    content_digest: str = ""
    inputs: tuple[InputRecord, ...] = ()
    unproved: tuple[str, ...] = ()
    bad_records: int = 0


@dataclass
class AlignedShard:
    """One shard and its attribute files, read side by side.

    Parameters
    ----------
    root : str
        Of the dataset.
    shard : Shard
        Its documents.
    columns : sequence of str
        Document columns; those that the proof of alignment needs are added.
    sources : sequence of AttributeSource
        Attribute files.
    default_source : str, optional
        Source of documents that lack the field.
    max_record_bytes : int
        See `DocumentFile`; rows of attributes may always have `MAX_RECORD_BYTES`.
    block_bytes : int
        Decompressed bytes per block, about.
    fields : Mapping[str, AttributeKind]
        Fields of the metadata to read, as ``metadata.<field>``.
    lean : bool
        Read no more of the documents than is asked, as far as the journal proves the alignment: each attribute file must be as it was
        written, and made from the document file as it is now. Else ``id``, ``source`` and ``text`` are always read and digested.
    checksum : bool
        See `DocumentFile`; where it is not wanted, the state has no checksum of a table.

    Attributes
    ----------
    state : ReadState
        Complete after the last block.

    Raises
    ------
    AlignmentError, StaleAttributesError
        While iterating; the latter after the last block.
    SchemaError
        A field of the metadata has a value of another kind.
    """

    root: str
    shard: Shard
    columns: Sequence[str]
    sources: Sequence[AttributeSource] = ()
    default_source: str | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    block_bytes: int = BLOCK_BYTES
    fields: Mapping[str, AttributeKind] = field(default_factory=dict)
    lean: bool = False
    checksum: bool = True
    state: ReadState = field(default_factory=ReadState)

    def __iter__(self) -> Iterator[AlignedBlock]:
        self.state.rows = self.state.bad_records = 0
        settled = [source for source in self.sources if self.lean and self._is_settled(source)]
        columns = self._columns([source for source in self.sources if source not in settled])
        try:
            if columns or not self.sources:
                yield from self._from_documents(columns)
            else:
                yield from self._from_attributes()
        except AlignmentError:
            self._compare(settled)  # by rows: what was seen without them may not be the first difference
            raise
        # written since the journal spoke of them: the rows themselves have to tell
        self._compare([source for source in settled if source.name in self.state.unproved])

    def _compare(self, sources: Sequence[AttributeSource]) -> None:
        """Compare attribute files with the ids and texts of the documents."""
        whole = replace(self, columns=(), sources=sources, fields={}, lean=False, state=ReadState())
        for _ in whole if sources else ():
            pass

    def _columns(self, unsettled: Sequence[AttributeSource]) -> tuple[str, ...]:
        """Return the document columns to read: those asked, and those that a proof needs."""
        asked = (*self.columns, *((METADATA,) if self.fields else ()))
        needed: tuple[str, ...] = ()
        if not self.lean or any(source.proof and source.proof.reads_text for source in unsettled):
            needed = ("id", "text", "source")
        elif unsettled:
            needed = ("id", "source")
        return tuple(dict.fromkeys((*needed, *asked)))

    def _is_settled(self, source: AttributeSource) -> bool:
        """Tell whether the journal knows the attribute file to be made from the document file as it is now."""
        proof = source.proof
        if proof is None or proof.documents is None or self.default_source is not None:
            return False
        return is_still(proof.documents, files.join(self.root, layout.document_path(self.shard.path)))

    def _from_documents(self, columns: Sequence[str]) -> Iterator[AlignedBlock]:
        state = self.state
        documents, ids, content = self._documents(columns), RowDigest(), RowDigest()
        with ExitStack() as stack:
            followers = [self._follower(source, stack) for source in self.sources]
            for block in documents:
                _digest(block, ids, content)
                state.rows += block.num_rows
                state.bad_records += len(block.bad)
                taken = [self._fields_of(block), *(follower.take(block) for follower in followers)]
                yield AlignedBlock(block, {key: array for one in taken for key, array in one.items()})
            state.ids_digest = ids.hexdigest() if {"id", "source"} <= set(columns) else ""
            state.content_digest = content.hexdigest() if {"id", "source", "text"} <= set(columns) else ""
            proved = [follower.finish(state.ids_digest, state.content_digest) for follower in followers]
        state.inputs = (self._input(documents), *proved)
        state.unproved = tuple(follower.source.name for follower in followers if not follower.proved)

    def _from_attributes(self) -> Iterator[AlignedBlock]:
        """Read attribute files alone: the first leads, and the documents, which the journal knows, stay closed."""
        state = self.state
        with ExitStack() as stack:
            leader, *followers = (self._follower(source, stack) for source in self.sources)
            for block, columns in leader.lead():
                state.rows += block.num_rows
                state.bad_records += block.batch.column("id").null_count
                taken = [columns, *(follower.take(block) for follower in followers)]
                yield AlignedBlock(block, {key: array for one in taken for key, array in one.items()})
            proved = [follower.finish("", "") for follower in (leader, *followers)]
        state.inputs = (self._known_input(), *proved)
        state.unproved = tuple(each.source.name for each in (leader, *followers) if not each.proved)

    def _fields_of(self, block: Block) -> Mapping[str, pa.Array]:
        if not self.fields:
            return {}
        columns, errors = scan_metadata(block.batch.column(METADATA), self.fields)
        for row, error in errors:
            raise SchemaError(
                f"{layout.document_path(self.shard.path)}, row {block.first_row + row}: {error.expected}, in the metadata as in earlier "
                "rows; expected one kind of value in all documents. Convert the field, or leave it out.",
                shard=self.shard.path,
                row=block.first_row + row,
            )
        return columns

    def _documents(self, columns: Sequence[str]) -> DocumentFile:
        return DocumentFile(
            files.join(self.root, layout.document_path(self.shard.path)),
            columns,
            source=self.default_source,
            max_record_bytes=self.max_record_bytes,
            block_bytes=self.block_bytes,
            checksum=self.checksum,
        )

    def _follower(self, source: AttributeSource, stack: ExitStack, first_row: int = 0) -> Follower:
        follower = Follower(
            self.root,
            self.shard,
            source,
            max_record_bytes=max(self.max_record_bytes, MAX_RECORD_BYTES),
            block_bytes=self.block_bytes,
            first_row=first_row,
        )
        stack.callback(follower.close)
        return follower

    def _input(self, documents: DocumentFile) -> InputRecord:
        stored = documents.stored
        return InputRecord(
            layout.document_path(self.shard.path), stored.info.bytes, stored.info.stamp, stored.checksum
        )

    def _known_input(self) -> InputRecord:
        """Return the document file, which was not read, as the journal knows it."""
        known = next(source.proof.documents for source in self.sources if source.proof)
        if known is None:
            raise AssertionError("only what the journal knows is read without its documents")
        return InputRecord(known.path, known.bytes, self.shard.stamp, known.checksum)


def _digest(block: Block, ids: RowDigest, content: RowDigest) -> None:
    """Add the rows of a block to the digests whose columns it has."""
    columns = {name: block.batch.column(name) for name in block.batch.schema.names}
    if "id" in columns and "source" in columns:
        ids.update(columns["source"], columns["id"])
        if "text" in columns:
            content.update(columns["source"], columns["id"], columns["text"])
