"""Writers of one token shard of ids back to back, in constant memory, visible only when it is whole; the ragged pair of npy files is one.

The header of an npy file comes first but holds the final count, and publishing is a stream (an object store cannot seek). So ids and
lengths go to two unnamed staging files in the system's temporary folder, and header and content are streamed to the output at the end.
Commit order: lengths or index, record, ids last; whoever sees ``data.npy`` sees a whole shard. When a shard is written again, its old
``data.npy`` goes first, so that old ids never stand beside new lengths.

Cost of the detour, measured on a local disk: 0.3 CPU-seconds per GB of ids (2.5 when the page cache is full), all in the kernel. A GB is
500 million tokens, six CPU-minutes of encoding, so a second way for targets that can seek is not worth having. Staging takes the size of
the shard; ``TMPDIR`` decides where (on a node whose ``/tmp`` is memory, point it at a disk).
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.ragged import (
    LENGTH_DTYPE,
    MAX_SIDECAR_BYTES,
    SIDECAR_START,
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
from dolma_dask.formats.token_files import FORMATS, SIDECAR, FormatName, part_of
from dolma_dask.io.files import join, read_bytes, remove, stat
from dolma_dask.io.publish import PublishedFile, publish_later
from dolma_dask.io.records import FileRecord
from dolma_dask.sinks.base import in_scratch
from dolma_dask.sinks.sink import DocumentRows
from dolma_dask.tokens.encoding import Tokens

COPY_BYTES = 1 << 20


class TokenWriter(Protocol):
    """Context manager that writes the token ids of one shard; leaving it by an exception writes nothing."""

    # for the record of origin, before it ends
    special_tokens: SpellingRecord | UnsetType
    lossy_documents: int
    source: SourceRecord | None

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def documents(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def files(self) -> tuple[FileRecord, ...]: ...
    @property
    def tokenizer(self) -> TokenizerRecord: ...
    @property
    def largest_id(self) -> int | None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def write(self, tokens: Tokens, rows: DocumentRows) -> None:
        """Append documents in their order; `rows` are the same documents.

        Raises `DataError`: an id is outside of the vocabulary; nothing of the batch is written.
        """
        ...


class StagedWriter:
    """Base of writers of ids back to back into a flat folder, with other files beside them; leaving it by an exception writes nothing.

    `tokenizer` decides the type of ids and the largest one allowed; `source` is the document shard behind the tokens, for the record.
    ``sidecar`` and ``files`` are set on a clean exit. A format says what the file of ids holds (`stage`, `write_ids`) and what stands beside it (`beside`).
    """

    format: ClassVar[FormatName]
    sidecar: RaggedSidecar  # counts and checksums, as in the file beside the shard
    files: tuple[FileRecord, ...]  # all of them, that of the ids first

    def __init__(
        self,
        folder: str,
        names: RaggedNames,
        tokenizer: TokenizerRecord,
        *,
        source: SourceRecord | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.source = source
        self.dtype = FORMATS[self.format].dtype(tokenizer.vocab_size - 1)
        # for the record, before it ends
        self.special_tokens: SpellingRecord | UnsetType = UNSET
        self.lossy_documents = 0
        self.data = names.stem + FORMATS[self.format].data
        self.tokens = 0
        self._folder, self._stem = folder, names.stem
        self.largest_id: int | None = None
        self._stack = contextlib.ExitStack()

    @property
    def documents(self) -> int:
        """Documents written so far."""
        return self.lengths.count

    def __enter__(self) -> Self:
        self._ids = StagedItems(self.dtype, self._stack)
        self.lengths = StagedItems(LENGTH_DTYPE, self._stack)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._stack:
            if kind is None:
                self._publish()

    def write(self, tokens: Tokens, rows: DocumentRows | None = None) -> None:
        """Append documents in their order. Raises `DataError`: an id is outside of the vocabulary; nothing of the batch is written."""
        where = join(self._folder, self.data)
        largest = check_ids(tokens.ids, self.tokenizer.vocab_size - 1, where=where)
        lengths = check_lengths(tokens.lengths)
        if largest is not None:
            self.largest_id = max(largest, self.largest_id or 0)
        self.stage(tokens, rows)
        self.lengths.append(lengths)
        self.tokens += tokens.ids.size

    def stage(self, tokens: Tokens, rows: DocumentRows | None) -> None:
        """Keep what the file of ids has of some documents."""
        self._ids.append(tokens.ids)

    def write_ids(self, out: PublishedFile) -> None:
        """Write the file of ids."""
        self._ids.copy_to(out)

    def beside(self, suffix: str, out: PublishedFile) -> None:
        """Write a file of the format that stands beside the ids."""
        raise NotImplementedError

    def _publish(self) -> None:
        url, suffixes = join(self._folder, self._stem), FORMATS[self.format]
        _check_replaceable(url + SIDECAR)
        remove(url + suffixes.data)
        written: dict[str, PublishedFile] = {}
        for suffix in suffixes.beside:
            if suffix != SIDECAR:
                with publish_later(url + suffix) as written[suffix]:
                    self.beside(suffix, written[suffix])
        with publish_later(url + suffixes.data) as data:  # appears when this block ends: after the record
            self.write_ids(data)
            written = {suffixes.data: data, **written}
            checksums = {part_of(suffix): out.checksum for suffix, out in written.items()}
            self.sidecar = shard_record(self, self.format, checksums)
            with publish_later(url + SIDECAR) as written[SIDECAR]:
                written[SIDECAR].write(self.sidecar.to_json())
        self.files = tuple(
            FileRecord(self._stem + suffix, out.bytes, out.checksum, self.documents)
            for suffix, out in written.items()
        )


def shard_record(writer: TokenWriter, name: FormatName, checksums: Mapping[str, str]) -> RaggedSidecar:
    """Return the record of origin of what was written."""
    return RaggedSidecar(
        dtype=writer.dtype.str,
        documents=writer.documents,
        tokens=writer.tokens,
        max_id=writer.largest_id,
        tokenizer=writer.tokenizer,
        source=writer.source,
        checksums=checksums,
        format=UNSET if name == "numpy" else name,
        special_tokens=writer.special_tokens,
        documents_with_lost_characters=writer.lossy_documents or UNSET,
    )


class RaggedWriter(StagedWriter):
    """Writes a ragged pair of npy files."""

    format = "numpy"

    def write_ids(self, out: PublishedFile) -> None:
        """Write header and ids."""
        out.write(npy_header(self.dtype, self.tokens))
        self._ids.copy_to(out)

    def beside(self, suffix: str, out: PublishedFile) -> None:
        """Write the lengths."""
        out.write(npy_header(self.lengths.dtype, self.documents))
        self.lengths.copy_to(out)


def _check_replaceable(url: str) -> None:
    """A numbered ``.json`` may be a file of documents: never overwrite one with a record of the same name."""
    known = stat(url)
    if known is None:
        return
    try:
        if known.bytes > MAX_SIDECAR_BYTES:
            raise CorruptFileError(f"{url} has {known.bytes} bytes")
        content = read_bytes(url)
        if not content.startswith(SIDECAR_START) and not SIDECAR_START.startswith(
            content
        ):  # a torn one is ours
            parse_sidecar(content, url)
    except CorruptFileError as error:
        raise UsageError(
            f"{url} exists and is not the record of a token shard; write to another folder than that of the documents",
            url=url,
        ) from error


class StagedItems:
    """Items of one file, waiting for their final count in a file without a name, of which a killed process leaves nothing."""

    def __init__(self, dtype: np.dtype[Any], stack: contextlib.ExitStack) -> None:
        self.dtype = dtype
        self.count = 0
        file = tempfile.TemporaryFile(prefix="dolma-dask-")  # noqa: SIM115
        self._file = stack.enter_context(file)

    def append(self, items: NDArray[np.integer[Any]]) -> None:
        with in_scratch("a token shard"):
            self._file.write(np.ascontiguousarray(items, self.dtype).data)
        self.count += items.size

    def copy_to(self, target: PublishedFile) -> None:
        """Append all items to a file."""
        with in_scratch("a token shard"):
            self._file.seek(0)
        shutil.copyfileobj(self._file, target, COPY_BYTES)

    def pieces(self, max_bytes: int = COPY_BYTES) -> Iterator[NDArray[Any]]:
        """Yield all items in arrays of `max_bytes`."""
        self._file.seek(0)
        while piece := self._file.read(max_bytes):
            yield np.frombuffer(piece, self.dtype)
