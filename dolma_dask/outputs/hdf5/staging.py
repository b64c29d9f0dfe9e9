"""Staging files: the ids of each shard between the two passes of `hdf5`, raw, beside the output, and removed at the end.

A staging file is the ids of all sequences back to back, in the type of ragged shards, and behind them one int32 per sequence with its length. How
many there are of each stands in the record of its task; digests follow (`dolma_dask.io.staging`). Disk: 2 bytes per token for most
vocabularies, half the text. Memory of the writer: 4 bytes per document of a shard.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from dolma_dask.engine import Unit
from dolma_dask.formats.hdf5 import TextCounts
from dolma_dask.formats.ragged import LENGTH_DTYPE, check_ids
from dolma_dask.io import files
from dolma_dask.io.records import BadRecord, FileRecord
from dolma_dask.io.staging import StagingReader, stage
from dolma_dask.journal import Record
from dolma_dask.sinks.base import FileWriter
from dolma_dask.sinks.findings import TextFindings
from dolma_dask.sinks.sink import DocumentRows, ShardFacts, WriterSink
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.modes import Mode

VERB = "hdf5-tokens"
"""Name of the first pass in progress, failures and its journal."""

SUFFIX = ".bin"


def staging_name(number: int) -> str:
    """Return the file of a part, relative to the folder of staging files."""
    return f"{number:06d}{SUFFIX}"


class StagedTokens(Struct, frozen=True):
    """One staging file: its size, and once it is there its checksum."""

    number: int  # of the part
    tokens: int  # what it holds
    sequences: int
    checksum: str = ""


class StagingWriter(FileWriter):
    """Writes one staging file, which appears on a clean exit."""

    def __init__(self, folder: str, number: int, mode: Mode) -> None:
        super().__init__(folder, staging_name(number), stage)
        self._engine = mode.engine
        self._lengths: list[NDArray[np.int32]] = []
        self.tokens = 0

    def write(self, tokens: Tokens) -> None:
        """Append sequences."""
        check_ids(tokens.ids, self._engine.max_id, where=self._url)
        self._out.write(np.ascontiguousarray(tokens.ids, self._engine.dtype))
        self._lengths.append(tokens.lengths)
        self.tokens += tokens.ids.size

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Lengths of all sequences so far."""
        return np.concatenate([np.empty(0, LENGTH_DTYPE), *self._lengths])

    def _finish(self) -> None:
        self._out.write(self.lengths)


class StagedFile:
    """One staging file below `folder`, open; its ids are of type `dtype`."""

    def __init__(self, folder: str, part: StagedTokens, dtype: np.dtype[Any]) -> None:
        self._part, self._dtype = part, dtype
        self._file = StagingReader(files.join(folder, staging_name(part.number)), part.checksum)

    def tokens(self, first: int, stop: int) -> NDArray[np.int32]:
        """Return some of its ids."""
        data = self._file.read(first * self._dtype.itemsize, (stop - first) * self._dtype.itemsize)
        return np.frombuffer(data, self._dtype).astype(np.int32)

    def lengths(self) -> NDArray[np.int32]:
        """Return the lengths of its sequences."""
        start = self._part.tokens * self._dtype.itemsize
        data = self._file.read(start, self._part.sequences * LENGTH_DTYPE.itemsize)
        return np.frombuffer(data, LENGTH_DTYPE).astype(np.int32)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TokenRun:
    """Ids of several staging files as one run, read from front to end; one staging file is open at a time. A piece is a staging file and a range of its ids."""

    def __init__(
        self, folder: str, pieces: Sequence[tuple[StagedTokens, int, int]], dtype: np.dtype[Any]
    ) -> None:
        self._folder, self._dtype = folder, dtype
        self._left = deque(pieces)
        self._file: StagedFile | None = None

    def take(self, count: int) -> NDArray[np.int32]:
        """Return the next `count` ids; there must be as many."""
        chunks = [np.empty(0, np.int32)]
        while count:
            part, first, stop = self._left[0]
            self._file = self._file or StagedFile(self._folder, part, self._dtype)
            end = min(stop, first + count)
            chunks.append(self._file.tokens(first, end))
            count -= end - first
            self._left[0] = (part, end, stop)
            if end == stop:
                self._left.popleft()
                self.close()
        return np.concatenate(chunks)

    def close(self) -> None:
        """Close the staging file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


class StagingSink(WriterSink[StagingWriter]):
    """Writes the staging file of one part."""

    def __init__(self, output: "StagingOutput", number: int, shard: str) -> None:
        self._mode = output.mode
        super().__init__(StagingWriter(output.folder, number, output.mode))
        self._texts = TextCounts()
        self._findings = TextFindings(shard, output.mode.engine.in_text)

    def write(self, rows: DocumentRows) -> list[BadRecord]:
        """See `dolma_dask.sinks.sink.Sink`."""
        tokens, counts, bad = self._findings.encode(rows, self._mode.encode)
        self.writer.write(tokens)
        self._texts += counts
        return bad

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        mode, lengths = self._mode, self.writer.lengths
        info: dict[str, Any] = {
            "tokens": self.writer.tokens,
            "sequences": len(lengths),
            "rows": len(mode.windows(lengths)) if mode.stream_tail is None else 0,
            "texts": asdict(self._texts),
            **self._findings.info,
        }
        if facts.skipped_members:
            info["skipped_members"] = facts.skipped_members
        counts = {"tokens": self.writer.tokens, **self._findings.sums(facts)}
        files = (self.writer.record, *quarantined)
        return facts.record(unit, files, self._texts.documents, counts=counts, info=info)


class StagingOutput(Struct, frozen=True):
    """A staging file for each part."""

    root: str  # of the output, for the quarantine
    folder: str  # of the staging files
    mode: Mode
    verb: ClassVar[str] = "hdf5"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the mode reads."""
        return self.mode.reads

    def open(self, unit: Unit, shard: str) -> StagingSink:
        """See `dolma_dask.sinks.sink.Output`."""
        return StagingSink(self, int(unit.name.removesuffix(SUFFIX)), shard)
