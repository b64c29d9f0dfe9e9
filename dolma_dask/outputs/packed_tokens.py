"""Token files that are cut by their size, or whose documents are in a random order, whatever shards they are from.

The passes are those of packed documents (`dolma_dask.outputs.packed`): pieces of each shard, for a shuffle sorted buckets of all pieces, and files put
together from their members. A member is a batch of documents with their ids; none is larger than a sixteenth of a file, unless one document is.
Disk: the ids once, twice while a shuffle is sorted. Memory: that of `ragged`, and while a bucket is sorted three times its ids.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from dolma_dask.display import counted
from dolma_dask.engine import Task, Unit, WorkDir, grouped
from dolma_dask.engine.documents import DocumentList, DocumentSource
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.findings import LOST, SPELLED
from dolma_dask.formats.ragged import RaggedNames, SourceRecord, SpellingRecord, TokenizerRecord, check_ids
from dolma_dask.formats.segments import FOLDER, segments_path, with_segments
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import FileRecord
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.journal import Record, work_key
from dolma_dask.options.base import without_empty
from dolma_dask.options.groups import check_outside
from dolma_dask.outputs.cutting import (
    DEFAULT_SIZE,
    MEMBERS_PER_FILE,
    PieceMember,
    empty_member,
    members_of,
    numbered,
    runs_of,
)
from dolma_dask.outputs.packed import Packed
from dolma_dask.outputs.pieces import Hashes, ScatterSink, SortStage
from dolma_dask.outputs.ragged import RaggedOutput, RaggedSink
from dolma_dask.sinks.base import FileWriter, Publish
from dolma_dask.sinks.findings import spelling_of
from dolma_dask.sinks.jsonl import MEMBER_BYTES
from dolma_dask.sinks.segments import PATH
from dolma_dask.sinks.sink import DocumentRows, ShardFacts
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import string_parts
from dolma_dask.tokens.encoding import Tokens

VERSION = 2
"""Raised whenever packed token files get other bytes for the same documents."""

NAME = "part-0"
"""Beginning of the names, as the Dolma toolkit's: there the number is that of a group of files that one process has read."""

_TEXTS = ("id", "source", PATH)
_COLUMNS = {
    **dict.fromkeys(_TEXTS, pa.large_string()),
    "row": pa.int64(),
    "found": pa.uint8(),
    "ids": pa.large_binary(),
}
SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _COLUMNS.items()])
_HASHED = SCHEMA.append(pa.field("hash", pa.uint64(), nullable=False))

_FOUND = {SPELLED: 1, LOST: 2}
"""Bits of what was found in the text of a document, for the record beside its file."""

_DOCUMENT_BYTES = 16
"""What a document counts at least in a member, so that empty ones end members too."""


class TokenPacking(Struct, frozen=True):
    """Rule by which token files are cut and named; see `dolma_dask.outputs.packed.Packing`."""

    prefix: str
    suffixes: tuple[str, ...]  # of the files of a format, that of the ids first
    max_bytes: int = DEFAULT_SIZE  # of ids in a file at most
    seed: int | None = None
    count: ClassVar[int | None] = None
    by_inputs: ClassVar[bool] = False
    piece_format: ClassVar[str] = "arrow"

    @property
    def reads(self) -> tuple[str, ...]:
        """Suffixes of files that readers take for token files."""
        return tuple(suffix for suffix in self.suffixes if suffix != ".json")

    @property
    def member_bytes(self) -> int:
        """Ids of a member at most, in bytes, unless one document has more."""
        return min(max(self.max_bytes // MEMBERS_PER_FILE, min(1024, self.max_bytes)), MEMBER_BYTES)

    def path(self, number: int, count: int) -> str:
        """Return the path of the ids of an output file."""
        return f"{self.prefix}-{numbered(number, count, 5)}{self.suffixes[0]}"

    def with_others(self, path: str) -> tuple[str, ...]:
        """Return the files of one output: ids, what stands beside them, and their segments."""
        stem = path.removesuffix(self.suffixes[0])
        return (*(stem + suffix for suffix in self.suffixes), segments_path(path))

    def is_output(self, path: str) -> bool:
        """Tell whether a path is one that output files of this name have."""
        name, suffixes = path.removeprefix(f"{FOLDER}/"), self.suffixes
        if name != path:
            suffixes = (segments_path(self.suffixes[0]).removeprefix(f"{FOLDER}/"),)
        number, mark, suffix = name.removeprefix(f"{self.prefix}-").partition(".")
        return name.startswith(f"{self.prefix}-") and number.isdigit() and mark + suffix in suffixes

    def params(self) -> dict[str, Any]:
        """Return what decides the cut."""
        return {"prefix": self.prefix, "max_bytes": self.max_bytes, "shuffle": self.seed}


class TokenPart(Struct, frozen=True):
    """Documents of one shard; see `dolma_dask.outputs.packed.PackedPart`."""

    source: DocumentSource

    @property
    def name(self) -> str:
        """Path of the shard."""
        return self.source.name

    @property
    def bytes(self) -> int:
        """Stored bytes of all that is read."""
        return sum(item.info.bytes for item in self.source.inputs)


class PackedTokens(Packed, frozen=True, dict=True):
    """Token files of documents from all shards."""

    parts: tuple[TokenPart, ...]
    packing: TokenPacking
    output: RaggedOutput
    documents: DocumentList

    verb = "ragged"
    version = VERSION

    @property
    def writes(self) -> tuple[str, ...]:
        """See `Packed`."""
        return tuple(with_segments(super().writes))

    @property
    def request(self) -> str:
        """See `Packed`."""
        params = {**self.documents.params, **self.output.params(), **self.policy.params()}
        return work_key(self.verb, self.output.files.version, params)

    @property
    def origin(self) -> str:
        """See `Packed`."""
        return self.documents.origin

    def piece_output(self, work: WorkDir) -> "TokenPieceOutput":
        """See `Packed`."""
        return TokenPieceOutput(
            self.output, work.url, self.packing.member_bytes, self.packing.seed, self.buckets
        )

    def sorting(self, work: WorkDir, pieces: tuple[tuple[str, str], ...]) -> "TokenSortStage":
        """See `Packed`."""
        return TokenSortStage(work.url, pieces, self.packing.member_bytes)

    def joining(self, folder: str) -> "TokenJoinStage":
        """See `Packed`."""
        return TokenJoinStage(self.output, folder)

    def groups(self, pieces: Sequence[Record]) -> list[list[PieceMember]]:
        """See `Packed`."""
        members = (member for piece in pieces for member in members_of(piece))
        groups = grouped(members, lambda member: member.text_bytes, self.packing.max_bytes)
        return groups or [[empty_member(pieces[0])]]


def packed_tokens(
    output: RaggedOutput,
    documents: DocumentList,
    policy: RecordPolicy,
    *,
    name: str | None = None,
    max_bytes: int | None = None,
    seed: int | None = None,
) -> PackedTokens:
    """Return the job of token files that are cut by size, and shuffled if there is a seed.

    Raises `UsageError`: the format has files that others refer to, or the folder is among the documents.
    """
    if not output.files.is_stream:
        streams = [each for each, one in FORMATS.items() if one.is_stream]
        raise UsageError(
            f"shuffle and max_size with format={output.format!r}; expected a format whose files are a stream of ids: {', '.join(streams)}."
        )
    check_outside(output.root, documents.origin)
    suffixes = (output.files.data, *output.files.beside)
    packing = TokenPacking(
        layout.check_name(name or NAME, "name"),
        suffixes,
        DEFAULT_SIZE if max_bytes is None else max_bytes,
        seed,
    )
    notes = [*documents.notes, *output.engine.notes, *output.others(rf"{re.escape(packing.prefix)}-\d+\.")]
    if documents.is_narrowed:
        every = counted(len(documents.shards), "shard")
        notes.append(f"the files hold {len(documents.parts):,} of {every} alone")
    shown = {"from": documents.origin, **output.params(), **output.shown(), **documents.shown}
    shown |= {"max_size": packing.max_bytes, "seed": seed, "name": name}
    return PackedTokens(
        root=output.root,
        parts=tuple(map(TokenPart, documents.parts)),
        packing=packing,
        policy=policy,
        params=without_empty(shown),
        notes=tuple(notes),
        is_narrowed=documents.is_narrowed,
        owns_folder=False,
        quarantine=output.verb,
        output=output,
        documents=documents,
    )


# pieces


def as_rows(tokens: Tokens, rows: DocumentRows, path: str, dtype: np.dtype[Any]) -> pa.StructArray:
    """Return documents (n,) with their ids as rows of a piece."""
    count = len(tokens.lengths)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(tokens.lengths, out=offsets[1:])
    ids = np.ascontiguousarray(tokens.ids, dtype)
    found = np.zeros(count, np.uint8)
    for one in tokens.findings:
        found[one.row] |= _FOUND.get(one.kind, 0)
    buffers = [None, pa.py_buffer(offsets * dtype.itemsize), pa.py_buffer(ids)]
    columns = [
        *(rows.batch.column(name).cast(pa.large_string()) for name in ("id", "source")),
        pa.repeat(pa.scalar(path, pa.large_string()), count),
        pa.array(rows.numbers, pa.int64()),
        pa.array(found),
        pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(SCHEMA))


def from_rows(rows: pa.StructArray, dtype: np.dtype[Any]) -> tuple[Tokens, DocumentRows]:
    """Return what `as_rows` was given, but for texts, and the path of each document in a column."""
    offsets, data = string_parts(rows.field("ids"))
    ids = data[offsets[0] : offsets[-1]].view(dtype)
    lengths = (np.diff(offsets) // dtype.itemsize).astype(np.int32)
    batch = pa.record_batch({name: rows.field(name) for name in _TEXTS})
    return Tokens(ids, lengths), DocumentRows(batch, rows.field("row").to_numpy())


def pack(hashes: Hashes, rows: pa.StructArray) -> bytes:
    """Return scattered rows as bytes, a message of Arrow."""
    batch = pa.RecordBatch.from_arrays([*rows.flatten(), pa.array(hashes)], schema=_HASHED)
    return bytes(batch.serialize())


def unpack(segment: bytearray) -> tuple[Hashes, pa.StructArray]:
    """Return what `pack` was given."""
    batch = pa.ipc.read_record_batch(pa.py_buffer(segment), _HASHED)
    rows = pa.StructArray.from_arrays(batch.columns[:-1], fields=list(SCHEMA))
    return batch.column("hash").to_numpy(), rows


class TokenPieceOutput(Struct, frozen=True):
    """A piece for each shard."""

    output: RaggedOutput
    folder: str  # of the pieces
    member_bytes: int
    seed: int | None  # of a shuffle
    buckets: int  # of a shuffle

    @property
    def root(self) -> str:
        """Root of the output, for the quarantine."""
        return self.output.root

    @property
    def verb(self) -> str:
        """See `dolma_dask.sinks.sink.Output`."""
        return self.output.verb

    @property
    def columns(self) -> tuple[str, ...]:
        """See `dolma_dask.sinks.sink.Output`."""
        return tuple(dict.fromkeys((*self.output.columns, "id", "source")))

    @property
    def cost(self) -> str:
        """See `dolma_dask.engine.map.Map.cost`."""
        return self.output.cost

    def open(self, unit: Unit, shard: str) -> "TokenPieceSink":
        """See `dolma_dask.sinks.sink.Output`."""
        held: MemberWriter | TokenScatter
        if self.seed is None:
            held = MemberWriter(self.folder, unit.name, self.member_bytes)
        else:
            held = TokenScatter(self.folder, unit.name, shard, self.seed, self.buckets)
        return TokenPieceSink(self.output, shard, PieceWriter(self.output, shard, held))


class MemberWriter(FileWriter):
    """Writes rows in members, each a message of Arrow."""

    def __init__(self, folder: str, path: str, member_bytes: int, publish: Publish = stage) -> None:
        super().__init__(folder, path, publish)
        self._limit = member_bytes
        self._waiting: list[pa.StructArray] = []
        self._cost = self._waiting_bytes = 0
        self.id_bytes = 0

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """The file, after a clean exit."""
        return (self.record,)

    def hold(self, numbers: Any, rows: pa.StructArray) -> None:
        """Append rows; members end before the document that would exceed them, wherever batches end."""
        sizes = pc.binary_length(rows.field("ids")).to_numpy().astype(np.int64)
        ends, first, done = np.cumsum(sizes + _DOCUMENT_BYTES), 0, 0
        while first < len(rows):
            stop = int(np.searchsorted(ends, done + self._limit - self._cost, side="right"))
            if stop <= first and self._waiting:
                self._end_member()
                continue
            stop = max(stop, first + 1)
            self._waiting.append(rows.slice(first, stop - first))
            self._waiting_bytes += int(sizes[first:stop].sum())
            self._cost += int(ends[stop - 1]) - done
            first, done = stop, int(ends[stop - 1])

    def _end_member(self) -> None:
        rows = pa.concat_arrays(self._waiting)
        self._members.append((self._out.bytes, self._rows, self.id_bytes))
        self._out.write(pa.RecordBatch.from_arrays(rows.flatten(), schema=SCHEMA).serialize())
        self._rows += len(rows)
        self.id_bytes += self._waiting_bytes
        self._waiting, self._cost, self._waiting_bytes = [], 0, 0

    def _finish(self) -> None:
        if self._waiting:
            self._end_member()


class TokenScatter(ScatterSink):
    """Scatters rows into buckets."""

    pack = staticmethod(pack)
    id_bytes = 0  # nobody asks


class PieceWriter:
    """Hands the ids of documents of one shard to the writer of a piece; see `dolma_dask.sinks.ragged.TokenWriter`."""

    def __init__(self, output: RaggedOutput, shard: str, held: MemberWriter | TokenScatter) -> None:
        self.tokenizer: TokenizerRecord = output.framing.record(output.engine)
        self.dtype = output.files.dtype(self.tokenizer.vocab_size - 1)
        self._path = layout.document_path(shard, output.folder)
        self.source: SourceRecord | None = SourceRecord(self._path, {})
        self.special_tokens: SpellingRecord | UnsetType = UNSET
        self.lossy_documents = self.documents = self.tokens = 0
        self.largest_id: int | None = None
        self.held = held

    def __enter__(self) -> Self:
        self.held.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.held.__exit__(kind, error, trace)

    @property
    def files(self) -> tuple[FileRecord, ...]:
        """See `TokenWriter`."""
        return self.held.files

    def write(self, tokens: Tokens, rows: DocumentRows) -> None:
        """See `TokenWriter`."""
        check_ids(tokens.ids, self.tokenizer.vocab_size - 1, where=self._path)
        if tokens.lengths.size:
            self.held.hold(rows.numbers, as_rows(tokens, rows, self._path, self.dtype))
            self.documents += tokens.lengths.size
            self.tokens += tokens.ids.size


class TokenPieceSink(RaggedSink):
    """Writes the piece of one shard."""

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """Return the record of a piece; its quarantine belongs to the dataset-wide record."""
        assert isinstance(self.writer, PieceWriter)
        record = super().record(unit, facts, ())
        info = {
            **record.info,
            "text_bytes": self.writer.held.id_bytes,
            "unproved": list(facts.unproved),
            "quarantine": [[file.path, file.bytes, file.checksum, file.rows] for file in quarantined],
        }
        return replace(record, info=info)


# later passes


class TokenSortStage(SortStage, frozen=True):
    """The second pass of a shuffle: the documents of some buckets from all pieces, each sorted."""

    verb: str = "ragged-sort"

    def unpack(self, segment: bytearray) -> tuple[Hashes, pa.Array]:
        """See `SortStage`."""
        return unpack(segment)

    def write(self, path: str, rows: pa.Array | None) -> tuple[FileRecord, int]:
        """See `SortStage`."""
        with MemberWriter(self.folder, path, self.member_bytes) as writer:
            if rows is not None:
                writer.hold(None, rows)
        return writer.record, writer.id_bytes


class FileFacts:
    """What the record beside a file says of its documents, besides their ids."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self._folders: set[str] = set()

    def add(self, rows: pa.StructArray) -> None:
        """Count some of them."""
        bits = rows.field("found").to_numpy()
        self.found.update({kind: int(np.count_nonzero(bits & bit)) for kind, bit in _FOUND.items()})
        self._folders.update(map(posixpath.dirname, pc.unique(rows.field(PATH)).to_pylist()))

    @property
    def source(self) -> SourceRecord | None:
        """The folder below which all shards of these documents are; None without documents."""
        return SourceRecord(posixpath.commonpath(self._folders), {}) if self._folders else None


class TokenJoinStage(Struct, frozen=True):
    """The last pass: output files of members of pieces."""

    output: RaggedOutput
    folder: str
    verb: str = "ragged"

    def run_shard(self, task: Task) -> list[Record]:
        """Put one file together, and what stands beside it; see `dolma_dask.engine.Stage`."""
        names = RaggedNames(task.unit.name.removesuffix(self.output.files.data))
        with ExitStack() as stack:
            writer = stack.enter_context(self.output.writer(names))
            segments = stack.enter_context(self.output.segments(names))  # appear first
            facts = FileFacts()
            for member in self._members(task.work):
                facts.add(member)
                tokens, rows = from_rows(member, writer.dtype)
                writer.write(tokens, rows)
                segments.write_documents(tokens.lengths, rows)
            writer.special_tokens = spelling_of(self.output.engine.in_text, facts.found[SPELLED])
            writer.lossy_documents, writer.source = facts.found[LOST], facts.source
        size = sum(file.bytes for file in writer.files)
        written = (*writer.files, segments.record)
        return [task.record(written, rows=writer.documents, counts={"bytes_out": size})]

    def _members(self, members: Sequence[PieceMember]) -> Iterator[pa.StructArray]:
        """Yield the rows of members in order; a piece stays open while they lie in it."""
        for run in runs_of(members):
            url = files.join(self.folder, run[0].path)
            with StagingReader(url, run[0].checksum, scattered=True) as piece:
                for member in (one for one in run if one.rows):
                    stored = piece.read(member.start, member.stop - member.start)
                    batch = pa.ipc.read_record_batch(pa.py_buffer(stored), SCHEMA)
                    yield pa.StructArray.from_arrays(batch.columns, fields=list(SCHEMA))
