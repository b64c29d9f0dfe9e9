"""The only reader of documents with attributes: columns of a shard side by side, in blocks, proved to belong together.

Only what is requested is read. Attributes alone leave the documents closed where the journal proves that each attribute file is as it was
written, and made from the document file as it is now; else ids are compared row by row, and texts by their digest where attributes depend on
them. Some rows of a large shard are entered at members of its files; what only whole files can tell is then checked once per process.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.dataset import Shard, shard_info
from dolma_dask.errors import (
    AlignmentError,
    BadRecordError,
    CorruptFileError,
    SchemaError,
    SourceChangedError,
)
from dolma_dask.formats import layout
from dolma_dask.formats.digests import DocumentDigests
from dolma_dask.formats.documents import METADATA
from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.metadata import scan_metadata
from dolma_dask.io import files
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.files import FileInfo, Input
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stored import WHOLE, Section
from dolma_dask.io.stream import BLOCK_BYTES, MAX_RECORD_BYTES
from dolma_dask.reading.follower import REMEMBERED, Follower, count_rows, is_still, remembered
from dolma_dask.reading.sets import AttributeSource, Proof, not_as_written, shard_inputs
from dolma_dask.rules.values import Value
from dolma_dask.sinks.sink import ShardFacts
from dolma_dask.text import compute as pc

_DIGESTED = ("id", "text", "source")
IDENTITY = ("id", "source")


class RowRange(Struct, frozen=True):
    """Consecutive rows of a shard."""

    section: Section = WHOLE  # of the document file
    rows: int = 0
    is_last: bool = True  # the file ends with them

    @property
    def first_row(self) -> int:
        """Row of the first."""
        return self.section.start.row


class ReadState(Struct):
    """Facts about a shard, complete after its last block; without inputs and digests for a range of rows."""

    rows: int = 0
    ids_digest: str = ""  # empty where id and source were not read, or nothing depends on it
    content_digest: str = ""  # the same of the text
    inputs: tuple[InputRecord, ...] = ()
    # attribute sets of which no record says from which documents they were made
    unproved: tuple[str, ...] = ()
    bad_records: int = 0


class AlignedShard(Struct, frozen=True, gc=False):
    """Columns of one shard that are read side by side: documents, fields of their metadata, attributes. Small; goes to workers."""

    root: str
    shard: Shard
    documents: tuple[str, ...] = ()  # columns of documents
    sources: tuple[AttributeSource, ...] = ()  # attribute files with the keys to read
    fields: Mapping[str, AttributeKind] = {}  # metadata.<field>
    default_source: str | None = None  # of documents that lack the field
    range: RowRange | None = None  # None: all rows
    digests: bool = False  # read and digest id, source and text, whatever the journal proves
    # look in the end whether attributes are of the very bytes that were read, and compare rows if not; of lines, whose bytes are hashed anyway, always
    checked: bool = False
    checksum: bool = True  # see `DocumentFile`
    exact: bool = False  # numbers keep all digits
    order: tuple[str, ...] = ()  # of the columns; empty: documents, fields, attributes
    computed: Mapping[str, Value] = {}  # columns in `order`, from others
    identities: bool = False  # id and source come first, from the attributes where documents are not opened

    @property
    def name(self) -> str:
        """Path of the shard, for progress and failures."""
        return self.shard.path

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """Files to read, relative to the dataset."""
        return shard_inputs(self.shard, self.sources)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Files to read, as inputs of a task."""
        return files.inputs_of(self.root, self.files)

    @property
    def url(self) -> str:
        """The document file."""
        return files.join(self.root, self.shard.document)

    @property
    def depends_on(self) -> frozenset[str]:
        """Columns of the documents that stand behind fields and attributes."""
        proofs = [source.proof for source in self.sources if source.proof]
        texts = ("text",) if any(proof.reads_text for proof in proofs) else ()
        fields = (METADATA,) if self.fields else ()
        return frozenset({*IDENTITY, *texts, *fields}.union(*(proof.undigested for proof in proofs)))

    def open(
        self,
        *,
        max_record_bytes: int = MAX_RECORD_BYTES,
        block_bytes: int = BLOCK_BYTES,
        quarantine: Quarantine | None = None,
        is_digested: bool = False,
    ) -> "AlignedReader":
        """Return the rows as an iterable of blocks; bad records go to the quarantine first, which may refuse them.

        Digests of what is read cost a tenth of reading: without `is_digested` there are those alone that prove attributes.
        """
        return AlignedReader(self, max_record_bytes, block_bytes, quarantine, is_digested)

    def read(
        self, columns: frozenset[str], policy: RecordPolicy, quarantine: Quarantine, facts: ShardFacts
    ) -> Iterator[Block]:
        """Yield all rows with further document `columns`, as a source of `dolma_dask.engine.map`; a null id stands where a row could not be read.

        The digests are those of the documents as they were read now, or as the attributes prove them.
        """
        shard = replace(self, documents=(*self.documents, *sorted(columns - {*self.documents})))
        reader = shard.open(max_record_bytes=policy.max_record_bytes, quarantine=quarantine, is_digested=True)
        yield from reader
        state, proofs = reader.state, [source.proof for source in self.sources if source.proof]
        texts = (proof.content_digest for proof in proofs if proof.reads_text)
        facts.inputs, facts.unproved, facts.reads = state.inputs, state.unproved, shard.depends_on
        facts.ids_digest = next(filter(None, [state.ids_digest, *(proof.ids_digest for proof in proofs)]), "")
        facts.content_digest = next(filter(None, [state.content_digest, *texts]), "")
        facts.counts = {"documents_in": state.rows, "bad_records": state.bad_records}


class AlignedReader(Struct):
    """Blocks of one shard with the requested columns.

    Strings and text are large_string; "document", "number" and "dict" attributes float64, or with `exact`
    `dolma_dask.formats.exact_numbers.EXACT`; spans ``list<struct<start, end, score>>``. A
    value is null where a document has none, or could not be read.

    While iterating, raises `AlignmentError`, `StaleAttributesError` (it may be found after the last block only), `BadRecordError`,
    `CorruptFileError`, `SchemaError`, and `SourceChangedError`: the document file is not the one that the range was made for.
    """

    work: AlignedShard
    max_record_bytes: int = MAX_RECORD_BYTES  # rows of attributes may always have `MAX_RECORD_BYTES`
    block_bytes: int = BLOCK_BYTES
    quarantine: Quarantine | None = None
    is_digested: bool = False
    state: ReadState = msgspec.field(default_factory=ReadState)
    first_unreadable: int | None = None
    """Row of the first document of the last block that could not be read, now or when attributes that are read alone were made."""

    def __iter__(self) -> Iterator[Block]:
        self.state.rows = self.state.bad_records = 0
        try:
            for block in self._all_rows() if self.work.range is None else self._range(self.work.range):
                if self.quarantine is not None:
                    self.quarantine.admit(block)
                yield block
        except AlignmentError as error:
            if not (self.work.digests or self.work.checked):
                self._raise_if_unreadable(error)
            raise
        except (CorruptFileError, BadRecordError, SchemaError) as error:
            for source in self.work.sources:
                proof, path = source.proof, source.info.path
                if proof is not None and not is_still(proof.file, files.join(self.work.root, path)):
                    raise not_as_written(proof, self.work.shard.path, source.info, str(error)) from error
            raise

    def read_all(self) -> ReadState:
        """Read to the end, for what it raises and what is known then."""
        for _ in self:
            pass
        return self.state

    def _all_rows(self) -> Iterator[Block]:
        work = self.work
        settled = [] if work.digests else [source for source in work.sources if self._is_settled(source)]
        unsettled = [source for source in work.sources if source not in settled]
        is_digested = self.is_digested or work.digests or bool(unsettled)
        try:
            yield from self._side_by_side(
                self._columns(unsettled), DocumentDigests() if is_digested else None
            )
        except AlignmentError:
            self._compare(settled)  # by rows: the error may not be about the first difference
            raise
        if work.checked or layout.format_of(work.shard.path) != "parquet":
            self._compare([source for source in settled if not self._was_made_from_these(source)])

    def _columns(self, unsettled: Sequence[AttributeSource]) -> tuple[str, ...]:
        """Return the document columns to read: those requested, and those that a proof needs."""
        needed: tuple[str, ...] = ()
        if self.work.digests or any(source.proof and source.proof.reads_text for source in unsettled):
            needed = _DIGESTED
        elif unsettled:
            needed = ("id", "source")
        return tuple(dict.fromkeys((*needed, *self.requested)))

    @property
    def requested(self) -> tuple[str, ...]:
        """Document columns that are requested, or from which something is."""
        return (*self.work.documents, *((METADATA,) if self.work.fields else ()))

    def _is_settled(self, source: AttributeSource) -> bool:
        """Tell whether the journal knows the attribute file to be made from the document file as it is now."""
        return self.work.default_source is None and _is_made_from(source.proof, self.work.url)

    def _was_made_from_these(self, source: AttributeSource) -> bool:
        """Tell whether an attribute file was made from the very bytes that have been read."""
        known = source.proof.documents if source.proof else None
        return known is not None and known.checksum == self.state.inputs[0].checksum

    def _compare(self, sources: Sequence[AttributeSource]) -> None:
        """Compare attribute files with the ids and texts of the documents."""
        work = self.work
        if sources:
            source = work.default_source
            shard = AlignedShard(work.root, work.shard, (), tuple(sources), {}, source, digests=True)
            shard.open(max_record_bytes=self.max_record_bytes).read_all()

    def _range(self, part: RowRange) -> Iterator[Block]:
        work = self.work
        for source in work.sources:
            # stale attributes do not show in the rows themselves
            if source.proof and source.proof.ids_digest and not _is_made_from(source.proof, work.url):
                self._check_all_rows(source)
        columns = self.requested
        if columns or not all(map(self._is_settled, work.sources)):
            columns = tuple(dict.fromkeys((*(("id", "source") if work.sources else ()), *columns)))
        try:
            if columns or not work.sources:
                self._check_start(part)
            yield from self._side_by_side(columns)
        except (AlignmentError, CorruptFileError) as error:
            self._check_files()
            if isinstance(error, AlignmentError):
                raise
            raise self._changed(part, f"cannot be read from the middle ({error})") from error
        if self.state.rows != part.rows:
            raise self._changed(part, f"has {self.state.rows} rows")

    def _side_by_side(
        self, columns: Sequence[str], digests: DocumentDigests | None = None
    ) -> Iterator[Block]:
        """Yield the rows of all files; without columns, those of the attribute files alone."""
        part, state = self.work.range, self.state
        if self.work.identities and (columns or not self.work.sources):
            columns = tuple(dict.fromkeys((*IDENTITY, *columns)))
        documents = self.documents(columns) if columns or not self.work.sources else None
        with ExitStack() as stack:
            followers = [self._follower(source, stack) for source in self.work.sources]
            for block, taken in self._blocks(documents, followers):
                state.rows += block.num_rows
                if digests and documents:
                    digests.update(block.batch)
                self.first_unreadable = _first_unreadable(block)
                yield self.put_together(block, taken)
            if part is not None:
                for follower in followers:
                    follower.finish_part(part.is_last)
                state.unproved = tuple(
                    item.name for item in self.work.sources if not (item.proof and item.proof.ids_digest)
                )
                return
            if digests:
                state.ids_digest = digests.ids if {*IDENTITY} <= {*columns} else ""
                state.content_digest = digests.content if {*_DIGESTED} <= {*columns} else ""
            proved = [follower.finish(state.ids_digest, state.content_digest) for follower in followers]
        path = self.work.shard.document
        read = self._known_input() if documents is None else documents.stored.record(path)
        state.inputs = (read, *proved)
        state.unproved = tuple(follower.source.name for follower in followers if not follower.proved)

    def _blocks(
        self, documents: DocumentFile | None, followers: Sequence[Follower]
    ) -> Iterator[tuple[Block, list[Mapping[str, pa.Array]]]]:
        """Yield blocks with the attributes of their rows; without documents, the first attribute file leads."""
        if documents is not None:
            for block in documents:
                self.state.bad_records += len(block.bad)
                yield block, [self.fields_of(block), *(follower.take(block) for follower in followers)]
            return
        leader, *others = followers
        for block, columns in leader.lead(self.work.range.rows if self.work.range else sys.maxsize):
            self.state.bad_records += block.batch.column("id").null_count
            yield block, [columns, *(follower.take(block) for follower in others)]

    def put_together(self, block: Block, taken: Sequence[Mapping[str, pa.Array]]) -> Block:
        """Return rows of documents with the columns that were taken beside them, in the requested order."""
        identity = IDENTITY if self.work.identities else ()
        columns = {name: block.batch.column(name) for name in (*identity, *self.work.documents)}
        for name, column in (item for one in taken for item in one.items()):
            columns.setdefault(name, column)
        columns.update({name: value.evaluate(columns).data for name, value in self.work.computed.items()})
        if not columns:  # rows without columns still have a number
            return replace(block, batch=block.batch.select([]))
        names = tuple(dict.fromkeys((*identity, *self.work.order))) if self.work.order else tuple(columns)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in names], names=names)
        return replace(block, batch=batch)

    def fields_of(self, block: Block) -> Mapping[str, pa.Array]:
        """Return the requested fields of the metadata."""
        if not self.work.fields:
            return {}
        columns, errors = scan_metadata(block.batch.column(METADATA), self.work.fields, exact=self.work.exact)
        path = self.work.shard.path
        for row, error in errors:
            raise SchemaError(
                f"{layout.document_path(path)}, row {block.first_row + row}: {error.expected}, in the metadata as in earlier "
                "rows; expected one kind of value in all documents. Ask for its text (metadata.<field>:str), convert the field, or leave it out.",
                shard=path,
                row=block.first_row + row,
            )
        return columns

    def documents(self, columns: Sequence[str]) -> DocumentFile:
        """Return the document file, or the requested part of it, with other columns."""
        work = self.work
        return DocumentFile(
            work.url,
            columns,
            source=work.default_source,
            ids_as_text=work.shard.ids_as_text,
            section=work.range.section if work.range else None,
            max_record_bytes=self.max_record_bytes,
            block_bytes=self.block_bytes,
            checksum=work.checksum,
        )

    def _follower(self, source: AttributeSource, stack: ExitStack) -> Follower:
        follower = Follower(
            self.work.root,
            self.work.shard,
            source,
            exact=self.work.exact,
            max_record_bytes=max(self.max_record_bytes, MAX_RECORD_BYTES),
            block_bytes=self.block_bytes,
            first_row=self.work.range.first_row if self.work.range else 0,
        )
        stack.callback(follower.close)
        return follower

    def _known_input(self) -> InputRecord:
        """Return the document file, which was not read, as the journal knows it."""
        known = next(source.proof.documents for source in self.work.sources if source.proof)
        assert known is not None, "only what the journal knows is read without its documents"
        return InputRecord(known.path, known.bytes, self.work.shard.stamp, known.checksum)

    def _raise_if_unreadable(self, error: AlignmentError) -> None:
        """Raise with the reason why a document cannot be read, if that is why its row differs: attributes were made when it could be."""
        row = error.details.get("row")
        if not isinstance(row, int):
            return
        shard = replace(self.work, range=None, checksum=False)
        for block in replace(self, work=shard).documents(("id", "source")):
            for record in block.bad:
                if record.row == row:
                    raise AlignmentError(f"{record}. {error}", **error.details) from error
            if block.first_row + block.num_rows > row:
                return

    def _check_start(self, part: RowRange) -> None:
        """Refuse to begin inside of a line: every range looks at its beginning, so that none loses its end."""
        start, url = part.section.start, self.work.url
        if layout.format_of(url) != "jsonl" or not start.offset:
            return
        with files.open_read(url, scattered=True) as handle:
            handle.seek(start.offset - 1)
            before = handle.read(1)
        if before != b"\n":
            raise self._changed(
                part, f"has {before!r} before byte {start.offset}, where row {start.row} should begin"
            )

    def _check_all_rows(self, source: AttributeSource) -> None:
        work = self.work
        whole = AttributeSource(source.name, source.info, {}, source.proof, source.maker)
        check = remembered(_check_all_rows, source.info, shard_info(work.shard))
        check(work.root, work.shard, whole, work.default_source)

    def _check_files(self) -> None:
        """Raise an error about the files as a whole, if there is one, rather than about their middle."""
        for source in self.work.sources:
            self._check_all_rows(source)
        count_rows(self.work.url)

    def _changed(self, part: RowRange, state: str) -> SourceChangedError:
        url = self.work.url
        return SourceChangedError(
            f"{url} {state}; expected {part.rows} rows from row {part.first_row} on, as the journal or an earlier look says. Was it "
            "edited since? Read its shards whole (partition_bytes=None), or write the documents again.",
            url=url,
            row=part.first_row,
        )


def _is_made_from(proof: Proof | None, url: str) -> bool:
    """Tell whether attributes were made from the document file as it is now."""
    return (
        proof is not None
        and proof.ids_digest != ""
        and proof.documents is not None
        and is_still(proof.documents, url)
    )


def _first_unreadable(block: Block) -> int | None:
    if block.bad:
        return block.bad[0].row
    ids = block.batch.column("id") if "id" in block.batch.schema.names else None
    if ids is None or not ids.null_count:
        return None
    return block.first_row + int(pc.index(pc.is_null(ids), True).as_py())


@lru_cache(maxsize=REMEMBERED)
def _check_all_rows(root: str, shard: Shard, source: AttributeSource, default_source: str | None) -> None:
    """Prove that a whole attribute file belongs to its documents, or raise the difference."""
    AlignedShard(root, shard, sources=(source,), default_source=default_source).open().read_all()
