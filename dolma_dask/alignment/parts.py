"""Some rows of a large shard on their own: entered at members, and compared row by row where the journal proves nothing.

What only whole files can tell is found out once per process: whether the documents are those that the journal speaks of, whether an
attribute file is as it was written (its stored bytes are hashed), and, where they are not, what is wrong with them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import lru_cache

import pyarrow as pa

from dolma_dask.alignment.follower import count_rows
from dolma_dask.alignment.rows import AlignedBlock, AlignedShard
from dolma_dask.alignment.sets import AttributeSource, Proof
from dolma_dask.alignment.unchanged import REMEMBERED, is_still, remembered
from dolma_dask.dataset import Shard, shard_info
from dolma_dask.errors import AlignmentError, CorruptFileError, SourceChangedError
from dolma_dask.formats import layout
from dolma_dask.formats.documents import METADATA
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo
from dolma_dask.io.records import Block
from dolma_dask.io.stored import WHOLE, Section


@dataclass(frozen=True)
class RowRange:
    """Consecutive rows of a shard.

    Attributes
    ----------
    section : Section
        Where they stand in the document file.
    rows : int
        How many they are.
    is_last : bool
        Whether the file ends with them.
    """

    section: Section = WHOLE
    rows: int = 0
    is_last: bool = True

    @property
    def first_row(self) -> int:
        """Row of the first."""
        return self.section.start.row


@dataclass
class AlignedPart(AlignedShard):
    """Some rows of one shard and its attribute files; see `AlignedShard`, whose state it has without inputs and digests.

    Raises
    ------
    AlignmentError, StaleAttributesError, SchemaError
        While iterating.
    SourceChangedError
        While iterating: the document file is not the one that the range was made for.
    """

    part: RowRange = RowRange()

    @classmethod
    def of(cls, shard: AlignedShard, part: RowRange) -> "AlignedPart":
        """Return a part of `shard`."""
        return cls(**{item.name: getattr(shard, item.name) for item in fields(shard)}, part=part)

    def __iter__(self) -> Iterator[AlignedBlock]:
        self.state.rows = self.state.bad_records = 0
        for source in self.sources:
            self._settle(source)
        try:
            for aligned in self._blocks():
                self.state.rows += aligned.block.num_rows
                yield aligned
        except (AlignmentError, CorruptFileError) as error:
            self._check_files()
            if isinstance(error, AlignmentError):
                raise
            raise self._changed(f"cannot be read from the middle ({error})") from error
        if self.state.rows != self.part.rows:
            raise self._changed(f"has {self.state.rows} rows")
        self.state.unproved = tuple(source.name for source in self.sources if source.proof is None)

    def _settle(self, source: AttributeSource) -> None:
        """Find out whether attributes are stale, which the rows themselves do not show."""
        proof = source.proof
        if proof is not None and not self._is_made_from_documents(proof):
            self._check_whole(source)

    def _is_made_from_documents(self, proof: Proof) -> bool:
        return proof.documents is not None and is_still(proof.documents, self._url)

    def _is_known(self, source: AttributeSource) -> bool:
        """Tell whether an attribute file can be read without the documents."""
        proof = source.proof
        if proof is None or self.default_source is not None or not self._is_made_from_documents(proof):
            return False
        return checksum_of(files.join(self.root, source.info.path), source.info) == proof.checksum

    def _blocks(self) -> Iterator[AlignedBlock]:
        asked = tuple(dict.fromkeys((*self.columns, *((METADATA,) if self.fields else ()))))
        if asked or not self.sources:
            return self._with_documents(asked)
        if all(self._is_known(source) for source in self.sources):
            return self._alone()
        return self._with_documents(())

    def _with_documents(self, asked: Sequence[str]) -> Iterator[AlignedBlock]:
        self._check_start()
        needed = ("id", "source") if self.sources else ()
        with ExitStack() as stack:
            followers = [self._follower(source, stack, self.part.first_row) for source in self.sources]
            for block in self._documents(tuple(dict.fromkeys((*needed, *asked)))):
                self.state.bad_records += len(block.bad)
                taken = [self._fields_of(block), *(follower.take(block) for follower in followers)]
                yield _joined(block, taken)
            for follower in followers:
                follower.finish_part(self.part.is_last)

    def _alone(self) -> Iterator[AlignedBlock]:
        with ExitStack() as stack:
            leader, *followers = (
                self._follower(source, stack, self.part.first_row) for source in self.sources
            )
            for block, columns in leader.lead(self.part.rows):
                self.state.bad_records += block.batch.column("id").null_count
                yield _joined(block, [columns, *(follower.take(block) for follower in followers)])
            for follower in (leader, *followers):
                follower.finish_part(self.part.is_last)

    def _documents(self, columns: Sequence[str]) -> DocumentFile:
        return DocumentFile(
            self._url,
            columns,
            source=self.default_source,
            section=self.part.section,
            max_record_bytes=self.max_record_bytes,
            block_bytes=self.block_bytes,
        )

    @property
    def _url(self) -> str:
        return files.join(self.root, layout.document_path(self.shard.path))

    def _check_start(self) -> None:
        """Refuse to begin inside of a line: every part looks at its beginning, so that none loses its end."""
        start = self.part.section.start
        if layout.format_of(self._url) != "jsonl" or not start.offset:
            return
        with files.open_read(self._url, scattered=True) as handle:
            handle.seek(start.offset - 1)
            found = handle.read(1)
        if found != b"\n":
            raise self._changed(
                f"has {found!r} before byte {start.offset}, where row {start.row} should begin"
            )

    def _check_whole(self, source: AttributeSource) -> None:
        check = remembered(_check_whole, source.info, shard_info(self.shard))
        check(
            self.root, self.shard, source.name, source.info, source.proof, source.maker, self.default_source
        )

    def _check_files(self) -> None:
        """Raise what is wrong with the files as a whole, rather than what was seen from the middle of them."""
        for source in self.sources:
            self._check_whole(source)
        count_rows(self._url)

    def _changed(self, found: str) -> SourceChangedError:
        part = self.part
        return SourceChangedError(
            f"{self._url} {found}; expected {part.rows} rows from row {part.first_row} on, as the journal or an earlier look says. Was it "
            "edited since? Read its shards whole (partition_bytes=None), or write the documents again.",
            url=self._url,
            row=part.first_row,
        )


def _joined(block: Block, taken: Sequence[Mapping[str, pa.Array]]) -> AlignedBlock:
    return AlignedBlock(block, {key: array for one in taken for key, array in one.items()})


def checksum_of(url: str, info: FileInfo) -> str:
    """Return the checksum of a file as it was listed; it is hashed once per process."""
    found: str = remembered(_checksum, info)(url, info)
    return found


@lru_cache(maxsize=REMEMBERED)
def _checksum(url: str, info: FileInfo) -> str:
    """Return the checksum of a file; it has one for each identity (`info`)."""
    return files.checksum(url)


@lru_cache(maxsize=REMEMBERED)
def _check_whole(
    root: str,
    shard: Shard,
    name: str,
    info: FileInfo,
    proof: Proof | None,
    maker: str | None,
    default_source: str | None,
) -> None:
    """Prove that a whole attribute file belongs to its documents, or raise what is wrong."""
    source = AttributeSource(name, info, {}, proof, maker)
    for _ in AlignedShard(root, shard, (), (source,), default_source, lean=True):
        pass
