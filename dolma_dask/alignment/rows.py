"""A shard of documents and its attribute files, read side by side in blocks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import pyarrow as pa

from dolma_dask.alignment.follower import Follower
from dolma_dask.alignment.sets import AttributeSource
from dolma_dask.dataset import Shard
from dolma_dask.formats import layout
from dolma_dask.formats.digests import RowDigest
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
        The asked keys, one value per row.
    """

    block: Block
    attributes: Mapping[str, pa.Array]


@dataclass
class ReadState:
    """What is known after a shard was read.

    ``inputs`` are the files read; ``unproved`` the attribute sets without a valid record.
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
        Document columns; ``id``, ``text`` and ``source`` are added, which the digests need.
    sources : sequence of AttributeSource
        Attribute files.
    default_source : str, optional
        Source of documents that lack the field.
    max_record_bytes : int
        See `DocumentFile`; rows of attributes may always have `MAX_RECORD_BYTES`.
    block_bytes : int
        Decompressed bytes per block, about.

    Attributes
    ----------
    state : ReadState
        Complete after the last block.

    Raises
    ------
    AlignmentError, StaleAttributesError
        While iterating; the latter after the last block.
    """

    root: str
    shard: Shard
    columns: Sequence[str]
    sources: Sequence[AttributeSource] = ()
    default_source: str | None = None
    max_record_bytes: int = MAX_RECORD_BYTES
    block_bytes: int = BLOCK_BYTES
    state: ReadState = field(default_factory=ReadState)

    def __iter__(self) -> Iterator[AlignedBlock]:
        state = self.state
        state.rows = state.bad_records = 0
        documents, ids, content = self._documents(), RowDigest(), RowDigest()
        with ExitStack() as stack:
            followers = [self._follower(source, stack) for source in self.sources]
            for block in documents:
                source, identity, text = (block.batch.column(name) for name in ("source", "id", "text"))
                ids.update(source, identity)
                content.update(source, identity, text)
                state.rows += block.num_rows
                state.bad_records += len(block.bad)
                taken = [follower.take(block) for follower in followers]
                yield AlignedBlock(block, {key: array for one in taken for key, array in one.items()})
            state.ids_digest, state.content_digest = ids.hexdigest(), content.hexdigest()
            proved = [follower.finish(ids.hexdigest(), content.hexdigest()) for follower in followers]
        state.inputs = (self._input(documents), *proved)
        state.unproved = tuple(follower.source.name for follower in followers if not follower.proved)

    def _documents(self) -> DocumentFile:
        return DocumentFile(
            files.join(self.root, layout.document_path(self.shard.path)),
            tuple(dict.fromkeys(("id", "text", "source", *self.columns))),
            source=self.default_source,
            max_record_bytes=self.max_record_bytes,
            block_bytes=self.block_bytes,
        )

    def _follower(self, source: AttributeSource, stack: ExitStack) -> Follower:
        largest = max(self.max_record_bytes, MAX_RECORD_BYTES)
        follower = Follower(
            self.root, self.shard, source, max_record_bytes=largest, block_bytes=self.block_bytes
        )
        stack.callback(follower.close)
        return follower

    def _input(self, documents: DocumentFile) -> InputRecord:
        stored = documents.stored
        return InputRecord(
            layout.document_path(self.shard.path), stored.info.bytes, stored.info.stamp, stored.checksum
        )
