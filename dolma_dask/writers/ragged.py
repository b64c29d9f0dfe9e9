"""Writer of one ragged token shard, in constant memory, visible only when it is whole.

The header of an npy file comes first but holds the final count, and publishing is a stream (an object store cannot seek). So ids and
lengths go to two unnamed staging files in the system's temporary folder, and header and content are streamed to the output at the end.
Commit order: lengths, record, ids last; whoever sees ``data.npy`` sees a whole shard. When a shard is written again, its old
``data.npy`` goes first, so that old ids never stand beside new lengths.

Cost of the detour, measured on a local disk: 0.3 CPU-seconds per GB of ids (2.5 when the page cache is full), all in the kernel. A GB is
500 million tokens, six CPU-minutes of encoding, so a second way for targets that can seek is not worth having. Staging takes the size of
the shard; ``TMPDIR`` decides where (on a node whose ``/tmp`` is memory, point it at a disk).
"""

import contextlib
import tempfile
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.ragged import (
    LENGTH_DTYPE,
    MAX_SIDECAR_BYTES,
    Checksums,
    RaggedNames,
    RaggedSidecar,
    SourceRecord,
    TokenizerRecord,
    check_ids,
    check_lengths,
    npy_header,
    parse_sidecar,
)
from dolma_dask.io.files import join, read_bytes, remove, stat
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.tokens.engine import Tokens

COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class WrittenShard:
    """Files that `RaggedWriter` has made."""

    names: RaggedNames  # names of the three files
    sidecar: RaggedSidecar  # counts and checksums, as in the file beside the shard
    bytes: int  # size of the three files together
    checksum: str  # of the sidecar's file


class RaggedWriter:
    """Context manager that writes one token shard into a flat folder; leaving it by an exception writes nothing.

    `tokenizer` decides the type of ids and the largest one allowed; `source` is the document shard behind the tokens, for the record.
    ``result`` is set on a clean exit.
    """

    def __init__(
        self,
        folder: str,
        names: RaggedNames,
        tokenizer: TokenizerRecord,
        *,
        source: SourceRecord | None = None,
        staging_folder: str | None = None,
    ) -> None:
        self.names = names
        self.tokenizer = tokenizer
        self.source = source
        self.result: WrittenShard | None = None
        self._folder = folder
        self._largest_id: int | None = None
        self._stack = contextlib.ExitStack()
        self._ids = _Staging(tokenizer.dtype, staging_folder)
        self._lengths = _Staging(LENGTH_DTYPE, staging_folder)

    @property
    def documents(self) -> int:
        """Documents written so far."""
        return self._lengths.count

    @property
    def tokens(self) -> int:
        """Tokens written so far."""
        return self._ids.count

    def __enter__(self) -> Self:
        self._stack.enter_context(self._ids.open())
        self._stack.enter_context(self._lengths.open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._stack:
            if kind is None:
                self.result = self._publish()

    def write(self, tokens: Tokens) -> None:
        """Append documents in their order. Raises `DataError`: an id is outside of the vocabulary; nothing of the batch is written."""
        where = join(self._folder, self.names.data)
        largest = check_ids(tokens.ids, self.tokenizer.vocab_size - 1, where=where)
        lengths = check_lengths(tokens.lengths)
        if largest is not None:
            self._largest_id = max(largest, self._largest_id or 0)
        self._ids.append(tokens.ids)
        self._lengths.append(lengths)

    def _publish(self) -> WrittenShard:
        data_url, lengths_url, sidecar_url = (
            join(self._folder, name) for name in (self.names.data, self.names.lengths, self.names.sidecar)
        )
        _check_replaceable(sidecar_url)
        remove(data_url)
        with publish(lengths_url) as lengths:
            self._lengths.copy_to(lengths)
        with publish(data_url) as data:  # appears when this block ends: after the record
            self._ids.copy_to(data)
            sidecar = self._sidecar(Checksums(data=data.checksum, len=lengths.checksum))
            with publish(sidecar_url) as record:
                record.write(sidecar.to_json())
        stored = data.bytes + lengths.bytes + record.bytes
        return WrittenShard(self.names, sidecar, stored, record.checksum)

    def _sidecar(self, checksums: Checksums) -> RaggedSidecar:
        return RaggedSidecar(
            dtype=self._ids.dtype.str,
            documents=self.documents,
            tokens=self.tokens,
            max_id=self._largest_id,
            tokenizer=self.tokenizer,
            source=self.source,
            checksums=checksums,
        )


def _check_replaceable(url: str) -> None:
    """A numbered ``.json`` may be a file of documents: never overwrite one with a record of the same name."""
    known = stat(url)
    if known is None:
        return
    try:
        if known.bytes > MAX_SIDECAR_BYTES:
            raise CorruptFileError(f"{url} has {known.bytes} bytes")
        parse_sidecar(read_bytes(url), url)
    except CorruptFileError as error:
        raise UsageError(
            f"{url} exists and is not the record of a token shard; write to another folder than that of the documents",
            url=url,
        ) from error


class _Staging:
    """Items of one npy file, waiting in an unnamed file for their final count."""

    def __init__(self, dtype: np.dtype[Any], folder: str | None) -> None:
        self.dtype = dtype
        self.count = 0
        self._folder = folder
        self._file: BinaryIO | None = None

    def open(self) -> BinaryIO:
        """Make the file; it has no name, so a killed process leaves nothing behind."""
        self._file = tempfile.TemporaryFile(dir=self._folder, prefix="dolma-dask-")  # noqa: SIM115
        return self._file

    def _opened(self) -> BinaryIO:
        if self._file is None or self._file.closed:
            raise UsageError("the writer is not open; write inside of `with RaggedWriter(...) as writer:`")
        return self._file

    def append(self, items: NDArray[np.integer[Any]]) -> None:
        file = self._opened()
        if items.size:
            try:
                file.write(np.ascontiguousarray(items, self.dtype).data)
            except OSError as error:
                error.add_note(
                    f"while staging a token shard in {self._folder or tempfile.gettempdir()} ({self.count} items so"
                    " far); set TMPDIR to a folder with room for a whole shard"
                )
                raise
            self.count += items.size

    def copy_to(self, target: PublishedFile) -> None:
        """Stream header and items."""
        target.write(npy_header(self.dtype, self.count))
        file = self._opened()
        file.flush()
        file.seek(0)
        block = memoryview(bytearray(COPY_BYTES))
        while filled := file.readinto(block):  # type: ignore[attr-defined]
            target.write(block[:filled])
