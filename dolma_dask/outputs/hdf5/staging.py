"""Staging files: the tokens of each shard between the two passes of `hdf5`, raw, beside the output, and removed at the end.

A staging file is the words of all sequences back to back (ids in the type of ragged shards; uint32 where a bit tells what is not predicted), and behind
them one int32 per sequence with its length; beside it are the owners of these (`dolma_dask.outputs.hdf5.owners`). How many there are of each stands in the record of its task; digests follow
(`dolma_dask.io.staging`). Disk: 2 bytes per token for most vocabularies, half the text. Memory of the writer: 4 bytes per sequence of a shard.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from dolma_dask.engine import Unit
from dolma_dask.formats import layout
from dolma_dask.formats.documents import RAW
from dolma_dask.formats.hdf5 import TextCounts
from dolma_dask.formats.ragged import LENGTH_DTYPE, check_ids
from dolma_dask.io import files
from dolma_dask.io.records import BadRecord, FileRecord
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.journal import Record
from dolma_dask.outputs.hdf5 import owners
from dolma_dask.outputs.hdf5.owners import OwnerWriter, PartSequences, Sequences, StagedOwners
from dolma_dask.placement import Cost, dearer
from dolma_dask.sinks.base import FileWriter
from dolma_dask.sinks.findings import TextFindings
from dolma_dask.sinks.segments import owners_of
from dolma_dask.sinks.sink import DocumentRows, ShardFacts, WriterSink
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.filling import ID
from dolma_dask.tokens.modes import Mode
from dolma_dask.tokens.packing import Segments, count_segments

VERB = "hdf5-tokens"
"""Name of the first pass in progress, failures and its journal."""

SUFFIX = ".bin"


def staging_name(number: int) -> str:
    """Return the file of a part, relative to the folder of staging files."""
    return f"{number:06d}{SUFFIX}"


def owners_name(number: int) -> str:
    """Return the file of the owners of its sequences."""
    return f"{number:06d}{owners.SUFFIX}"


class StagedTokens(Struct, frozen=True):
    """One staging file: its size, and once it is there its checksum."""

    number: int  # of the part
    tokens: int  # what it holds
    sequences: int
    checksum: str = ""
    owners: str = ""  # checksum of the owners of the sequences


class StagingWriter(FileWriter):
    """Writes one staging file, which appears on a clean exit."""

    def __init__(self, folder: str, number: int, mode: Mode) -> None:
        super().__init__(folder, staging_name(number), stage)
        self._mode, self._number = mode, number
        self._lengths: list[NDArray[np.int32]] = []
        self.tokens = 0

    def _begin(self, stack: ExitStack) -> None:
        self._owners = OwnerWriter(self._root, owners_name(self._number), stack)

    @property
    def files(self) -> tuple[FileRecord, FileRecord]:
        """Words and owners, after a clean exit."""
        return self.record, self._owners.record

    def write(self, tokens: Tokens, documents: pa.RecordBatch) -> None:
        """Append sequences of some documents; see `owners_of`."""
        mode = self._mode
        ids = tokens.ids & ID if mode.recipe.has_marks else tokens.ids
        check_ids(ids, mode.engine.max_id, where=self._url)
        self._out.write(np.ascontiguousarray(tokens.ids).astype(mode.words, copy=False))
        self._lengths.append(tokens.lengths)
        self.tokens += tokens.ids.size
        self._owners.write(tokens, documents)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Lengths of all sequences so far."""
        return np.concatenate([np.empty(0, LENGTH_DTYPE), *self._lengths])

    def _finish(self) -> None:
        self._out.write(self.lengths)
        self._owners.finish()


class StagedFile:
    """One staging file below `folder`, open; its words are of type `dtype`."""

    def __init__(self, folder: str, part: StagedTokens, dtype: np.dtype[Any]) -> None:
        self._folder, self._part, self._dtype = folder, part, dtype
        self._file = StagingReader(files.join(folder, staging_name(part.number)), part.checksum)

    def tokens(self, first: int, stop: int) -> NDArray[np.int32]:
        """Return some of its words."""
        data = self._file.read(first * self._dtype.itemsize, (stop - first) * self._dtype.itemsize)
        words = np.frombuffer(data, self._dtype)
        return words.view(np.int32) if self._dtype.itemsize == 4 else words.astype(np.int32)

    def lengths(self) -> NDArray[np.int32]:
        """Return the lengths of its sequences."""
        start = self._part.tokens * self._dtype.itemsize
        data = self._file.read(start, self._part.sequences * LENGTH_DTYPE.itemsize)
        return np.frombuffer(data, LENGTH_DTYPE).astype(np.int32)

    def sequences(self) -> PartSequences:
        """Return its sequences, which can be read when it is closed."""
        name, checksum = owners_name(self._part.number), self._part.owners
        return PartSequences(self.lengths(), lambda: StagedOwners(self._folder, name, checksum))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


Pieces = Sequence[tuple[StagedTokens, int, int]]
"""Ranges of staging files."""


class TokenRun:
    """Ids of several staging files as one run, read from front to end; one staging file is open at a time. A piece is a staging file and a range of its ids."""

    def __init__(self, folder: str, pieces: Pieces, dtype: np.dtype[Any]) -> None:
        self._folder, self._dtype = folder, dtype
        self._left = deque(pieces)
        self._file: StagedFile | None = None
        self._taken = 0
        # sequences of the pieces so far that are still of interest: where each piece begins in the run, and its range of words
        self._sequences = deque[tuple[PartSequences, int, int, int]]()

    def take(self, count: int) -> NDArray[np.int32]:
        """Return the next `count` ids; there must be as many."""
        chunks = [np.empty(0, np.int32)]
        while count:
            part, first, stop = self._left[0]
            if self._file is None:
                self._file = StagedFile(self._folder, part, self._dtype)
                self._sequences.append((self._file.sequences(), self._taken, first, stop))
            end = min(stop, first + count)
            chunks.append(self._file.tokens(first, end))
            count -= end - first
            self._taken += end - first
            self._left[0] = (part, end, stop)
            if end == stop:
                self._left.popleft()
                self.close()
        return np.concatenate(chunks)

    def sequences(self, begin: int, end: int) -> Sequences:
        """Return the sequences of some words that were taken, from `begin` of the run on; `begin` never descends."""
        while self._sequences and _end(*self._sequences[0][1:]) <= begin:
            self._sequences.popleft()
        return Sequences.joined(
            [
                part.between(first + max(begin - at, 0), min(stop, first + end - at), max(at - begin, 0))
                for part, at, first, stop in self._sequences
            ]
        )

    def close(self) -> None:
        """Close the staging file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _end(at: int, first: int, stop: int) -> int:
    """Return where a piece ends in a run in which it begins at `at`."""
    return at + stop - first


class SegmentReader:
    """Segments of several staging files, window after window; one staging file is open at a time."""

    def __init__(self, folder: str, mode: Mode) -> None:
        self._folder, self._mode = folder, mode
        self._part = -1
        self._file: StagedFile | None = None

    def segments(self, pieces: Pieces) -> Segments:
        """Return the segments of ranges of sequences' segments, as they stand in their staging files."""
        every = [self._open(part).slice(first, stop) for part, first, stop in pieces]
        starts, sizes = ([getattr(one, name) for one in every] for name in ("starts", "sizes"))
        return Segments(*(np.concatenate([np.empty(0, np.int64), *parts]) for parts in (starts, sizes)))

    def read(self, pieces: Pieces) -> tuple[NDArray[np.int32], Segments, Sequences]:
        """Return the words of ranges of segments as one run, and where the segments and their sequences lie in it."""
        words, starts, sizes, done = [np.empty(0, np.int32)], [], [], 0
        sequences = []
        for part, first, stop in pieces:
            some = self._open(part).slice(first, stop)
            begin, end = int(some.starts[0]), int(some.starts[-1] + some.sizes[-1])
            assert self._file is not None
            words.append(self._file.tokens(begin, end))
            starts.append(some.starts - begin + done)
            sizes.append(some.sizes)
            sequences.append(self._sequences.between(begin, end, done))
            done += end - begin
        segments = Segments(np.concatenate(starts), np.concatenate(sizes))
        return np.concatenate(words), segments, Sequences.joined(sequences)

    def _open(self, part: StagedTokens) -> Segments:
        """Return all segments of a staging file, which is open then."""
        if part.number != self._part:
            self.close()
            self._file = StagedFile(self._folder, part, self._mode.words)
            self._part, self._segments = part.number, self._mode.segments(self._file.lengths())
            self._sequences = self._file.sequences()
        return self._segments

    def close(self) -> None:
        """Close the staging file that is open."""
        if self._file is not None:
            self._file.close()
            self._file, self._part = None, -1


class ChunkCounts:
    """Segments of the chunks in which ModelZoo reads a file: records whose values, as UTF-8, have at most so many bytes in all."""

    def __init__(self, mode: Mode) -> None:
        self._max_bytes = mode.max_chunk_size << 10
        self._bytes, self._records = 0, 0
        self.segments = [0]

    def add(self, sizes: NDArray[np.int64], segments: NDArray[np.int64]) -> None:
        """Count records with values of these bytes (n,), and as many segments each."""
        for size, count in zip(sizes.tolist(), segments.tolist(), strict=True):
            number_bytes = max((self._records.bit_length() + 7) // 8, 1)  # of the record's own number
            if self._bytes + size + number_bytes > self._max_bytes and self._bytes:
                self.segments.append(0)
                self._bytes = 0
            self.segments[-1] += count
            self._bytes += size
            self._records += 1


class StagingSink(WriterSink[StagingWriter]):
    """Writes the staging file of one part."""

    def __init__(self, output: "StagingOutput", number: int, shard: str) -> None:
        self._mode, self._path = output.mode, layout.document_path(shard)
        super().__init__(StagingWriter(output.folder, number, output.mode))
        self._texts = TextCounts()
        self._chunks = ChunkCounts(output.mode) if output.mode.packing == "modelzoo" else None
        self._findings = TextFindings(
            shard, output.mode.engine.in_text, skips_unusable=output.mode.like_modelzoo
        )

    def write(self, rows: DocumentRows) -> list[BadRecord]:
        """See `dolma_dask.sinks.sink.Sink`."""
        tokens, (counts, kept), bad = self._findings.encode(rows, self._encode)
        self.writer.write(tokens, owners_of(kept, self._path))
        self._texts += counts
        return bad

    def _encode(self, rows: DocumentRows) -> tuple[Tokens, tuple[TextCounts, DocumentRows]]:
        mode = self._mode
        records = rows.lines if mode.recipe.reads == RAW else rows.batch.column("text")
        tokens, counts = mode.recipe.encode(records)
        if self._chunks is not None:
            sizes = mode.recipe.value_bytes(records)
            each = count_segments(tokens.lengths, mode.length, mode.least)
            if tokens.owners is not None:
                each = np.bincount(tokens.owners, each, len(sizes)).astype(np.int64)
            self._chunks.add(sizes, each)
        return tokens, (counts, rows)

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        mode, lengths = self._mode, self.writer.lengths
        each = count_segments(lengths, mode.length, mode.least)
        is_stream = mode.stream_tail is not None
        texts = replace(self._texts, empty=0 if is_stream else self._texts.empty + int((each == 0).sum()))
        info: dict[str, Any] = {
            "tokens": self.writer.tokens,
            "sequences": len(lengths),
            "rows": 0 if is_stream else int(each.sum()),
            "texts": asdict(texts),
            **self._findings.info,
        }
        if self._chunks is not None:
            info["chunks"] = self._chunks.segments
        if facts.skipped_members:
            info["skipped_members"] = facts.skipped_members
        counts = {"tokens": self.writer.tokens, **self._findings.sums(facts)}
        return facts.record(
            unit, (*self.writer.files, *quarantined), self._texts.documents, counts=counts, info=info
        )


class StagingOutput(Struct, frozen=True):
    """A staging file for each part."""

    root: str  # of the output, for the quarantine
    folder: str  # of the staging files
    mode: Mode
    verb: ClassVar[str] = "hdf5"

    @property
    def cost(self) -> str | Cost:
        """See `dolma_dask.engine.map.Map.cost`."""
        engine, locked = self.mode.engine, self.mode.recipe.locked
        return dearer(engine.cost, locked) if engine.fast and locked else engine.cost

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the mode reads."""
        return (self.mode.recipe.reads,)

    def open(self, unit: Unit, shard: str) -> StagingSink:
        """See `dolma_dask.sinks.sink.Output`."""
        return StagingSink(self, int(unit.name.removesuffix(SUFFIX)), shard)
