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
import shutil
import tempfile
from types import TracebackType
from typing import Any, Self

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.ragged import (
    LENGTH_DTYPE,
    MAX_SIDECAR_BYTES,
    Checksums,
    RaggedNames,
    RaggedSidecar,
    SourceRecord,
    SpellingRecord,
    TokenizerRecord,
    check_ids,
    check_lengths,
    npy_header,
    parse_sidecar,
)
from dolma_dask.io.files import join, read_bytes, remove, stat
from dolma_dask.io.publish import PublishedFile, publish
from dolma_dask.io.records import FileRecord
from dolma_dask.tokens.encoding import Tokens

COPY_BYTES = 1 << 20


class RaggedWriter:
    """Context manager that writes one token shard into a flat folder; leaving it by an exception writes nothing.

    `tokenizer` decides the type of ids and the largest one allowed; `source` is the document shard behind the tokens, for the record.
    ``sidecar`` and ``files`` are set on a clean exit.
    """

    sidecar: RaggedSidecar  # counts and checksums, as in the file beside the shard
    files: tuple[FileRecord, ...]  # the three files

    def __init__(
        self,
        folder: str,
        names: RaggedNames,
        tokenizer: TokenizerRecord,
        *,
        source: SourceRecord | None = None,
    ) -> None:
        self.names = names
        self.tokenizer = tokenizer
        self.source = source
        # for the record, before it ends
        self.special_tokens: SpellingRecord | UnsetType = UNSET
        self.lossy_documents = 0
        self._folder = folder
        self._largest_id: int | None = None
        self._stack = contextlib.ExitStack()

    @property
    def documents(self) -> int:
        """Documents written so far."""
        return self._lengths.count

    @property
    def tokens(self) -> int:
        """Tokens written so far."""
        return self._ids.count

    def __enter__(self) -> Self:
        self._ids = _Staging(self.tokenizer.dtype, self._stack)
        self._lengths = _Staging(LENGTH_DTYPE, self._stack)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is None:
                self._publish()

    def write(self, tokens: Tokens) -> None:
        """Append documents in their order. Raises `DataError`: an id is outside of the vocabulary; nothing of the batch is written."""
        where = join(self._folder, self.names.data)
        largest = check_ids(tokens.ids, self.tokenizer.vocab_size - 1, where=where)
        lengths = check_lengths(tokens.lengths)
        if largest is not None:
            self._largest_id = max(largest, self._largest_id or 0)
        self._ids.append(tokens.ids)
        self._lengths.append(lengths)

    def _publish(self) -> None:
        data_url, lengths_url, sidecar_url = (
            join(self._folder, name) for name in (self.names.data, self.names.lengths, self.names.sidecar)
        )
        _check_replaceable(sidecar_url)
        remove(data_url)
        with publish(lengths_url) as lengths:
            self._lengths.copy_to(lengths)
        with publish(data_url) as data:  # appears when this block ends: after the record
            self._ids.copy_to(data)
            self.sidecar = RaggedSidecar(
                dtype=self._ids.dtype.str,
                documents=self.documents,
                tokens=self.tokens,
                max_id=self._largest_id,
                tokenizer=self.tokenizer,
                source=self.source,
                checksums=Checksums(data=data.checksum, len=lengths.checksum),
                special_tokens=self.special_tokens,
                documents_with_lost_characters=self.lossy_documents or UNSET,
            )
            with publish(sidecar_url) as record:
                record.write(self.sidecar.to_json())
        written = {self.names.data: data, self.names.lengths: lengths, self.names.sidecar: record}
        self.files = tuple(
            FileRecord(name, out.bytes, out.checksum, self.documents) for name, out in written.items()
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
    """Items of one npy file, waiting for their final count in a file without a name, of which a killed process leaves nothing."""

    def __init__(self, dtype: np.dtype[Any], stack: contextlib.ExitStack) -> None:
        self.dtype = dtype
        self.count = 0
        file = tempfile.TemporaryFile(prefix="dolma-dask-")  # noqa: SIM115
        self._file = stack.enter_context(file)

    def append(self, items: NDArray[np.integer[Any]]) -> None:
        try:
            self._file.write(np.ascontiguousarray(items, self.dtype).data)
        except OSError as error:
            error.add_note(
                f"while staging a token shard in {tempfile.gettempdir()} ({self.count} items so far); set TMPDIR to a folder with room for a"
                " whole shard"
            )
            raise
        self.count += items.size

    def copy_to(self, target: PublishedFile) -> None:
        """Stream header and items."""
        target.write(npy_header(self.dtype, self.count))
        self._file.seek(0)
        shutil.copyfileobj(self._file, target, COPY_BYTES)
