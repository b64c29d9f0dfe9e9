"""Ragged token shards: names, the type of ids, lengths, headers, and the record of origin. Pure rules, no files.

A token shard is a pair of real ``.npy`` files in a flat folder: ``<stem>.data.npy`` holds the ids of all documents back to back,
``<stem>.len.npy`` one int32 per document. Nothing stands between two documents. Any tool that reads the pairs of pre-tokenize reads ours.
``data.npy`` appears last, so a shard is complete if it is there.

Headers are written apart from the items, because tokens come as a stream; the bytes are those of `numpy.save` (version 1.0): always 128 for
a 1-D array.

``<stem>.json`` says which tokenizer and which source made the ids, and what they must hash to. It is for people and for our own reader; other
tools ignore it. It holds no time and no absolute path, so the same input gives the same bytes on any machine.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Struct, UnsetType
from numpy.typing import NDArray

from dolma_dask.errors import CorruptFileError, DataError, UsageError
from dolma_dask.formats.json import NOT_JSON

LENGTH_DTYPE = np.dtype("<i4")
MAX_LENGTH = 2**31 - 1

_ID_DTYPES = (np.dtype("<i2"), np.dtype("<u2"), np.dtype("<u4"))
_NUMBERED = re.compile(r"(?P<name>.+)\.(?P<index>\d+)-of-(?P<count>\d+)", re.DOTALL)
_JSON_SUFFIX = re.compile(r"\.(json|jsonl|ndjson)(\.(gz|zst|bz2|xz))?$")


def token_dtype(max_id: int) -> np.dtype[Any]:
    """Return the smallest type of the format that holds every id up to `max_id`: ``<i2`` up to 32,767, ``<u2`` up to 65,535, else ``<u4``.

    int16 comes first because the original tool writes nothing else: a vocabulary that fits gives the same bytes.
    Above 32,767 the original wraps to negative ids without a word; here the type grows instead.

    Raises `UsageError`: ``max_id`` is negative or needs more than 32 bits.
    """
    for dtype in _ID_DTYPES:
        if 0 <= max_id <= np.iinfo(dtype).max:
            return dtype
    raise UsageError(
        f"largest token id is {max_id}, expected 0 to {2**32 - 1}; check the vocabulary", max_id=max_id
    )


def check_ids(ids: NDArray[np.integer[Any]], max_id: int, *, where: str) -> int | None:
    """Refuse ids that are outside of the vocabulary, before a cast could wrap them; return the largest that occurs.

    Raises `DataError`: an id is negative or above ``max_id``; the message names the position and the file `where`.
    """
    if ids.size == 0:
        return None
    largest = int(ids.max())
    smallest = int(ids.min()) if ids.dtype.kind == "i" else 0
    if smallest < 0 or largest > max_id:
        position = int(np.flatnonzero((ids < 0) | (ids > max_id))[0])
        raise DataError(
            f"{where}: token {position} of the batch has id {int(ids[position])}, expected 0 to {max_id} (the"
            " vocabulary with added tokens); write with the tokenizer that made the ids",
            position=position,
            id=int(ids[position]),
            max_id=max_id,
        )
    return largest


def check_lengths(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Cast document lengths to the int32 of the format, or say which one does not fit.

    Raises `DataError`: a length is negative or above 2,147,483,647.
    """
    if lengths.size and (int(lengths.max()) > MAX_LENGTH or int(lengths.min()) < 0):
        row = int(np.flatnonzero((lengths > MAX_LENGTH) | (lengths < 0))[0])
        raise DataError(
            f"document {row} of the batch has {int(lengths[row])} tokens, expected 0 to {MAX_LENGTH} (lengths are"
            " int32); split or drop the document",
            row=row,
            tokens=int(lengths[row]),
        )
    return lengths.astype(LENGTH_DTYPE, copy=False)


class RaggedNames(Struct, frozen=True):
    """The three file names of one token shard."""

    stem: str  # what the three share, such as ``wiki.00003-of-00040``

    @property
    def data(self) -> str:
        """Name of the ids; the shard exists once this file does."""
        return f"{self.stem}.data.npy"

    @property
    def lengths(self) -> str:
        """Name of the document lengths."""
        return f"{self.stem}.len.npy"

    @property
    def sidecar(self) -> str:
        """Name of the record of origin."""
        return f"{self.stem}.json"

    @property
    def numbered(self) -> tuple[str, int, int] | None:
        """``(name, index, count)`` of a stem ``name.index-of-count``, else None."""
        match = _NUMBERED.fullmatch(self.stem)
        return (match["name"], int(match["index"]), int(match["count"])) if match else None


def ragged_names(sources: Sequence[str], dataset: str) -> list[RaggedNames]:
    """Name the token shards of a dataset, one for each of its sorted source paths.

    Sources that already are numbered parts, as C4's ``c4-train.00000-of-01024.json.gz``, keep their names, so
    that a partial download does not renumber them (the original tool does). That holds for all sources or for
    none: as soon as one has another name, or two would collide in the flat folder, all become
    ``<dataset>.<index>-of-<count>``.

    Raises `UsageError`: ``dataset`` is not a plain file name.
    """
    own = [_JSON_SUFFIX.sub("", PurePosixPath(source).name) for source in sources]
    if all(_NUMBERED.fullmatch(stem) for stem in own) and len(set(own)) == len(own):
        return [RaggedNames(stem) for stem in own]
    if not dataset or "/" in dataset or "\0" in dataset or dataset.startswith("."):
        raise UsageError(
            f"dataset name {dataset!r} cannot begin a file name; expected a plain word such as 'wiki'",
            dataset=dataset,
        )
    count = len(sources)
    return [RaggedNames(f"{dataset}.{index:05d}-of-{count:05d}") for index in range(count)]


NPY_MAGIC = b"\x93NUMPY"


class NpyHeader(Struct, frozen=True):
    """Description of a 1-D array in the head of an npy file."""

    dtype: np.dtype[Any]  # type of one item
    count: int  # number of items
    offset: int  # byte at which the items begin

    @property
    def file_bytes(self) -> int:
        """Size that the whole file must have."""
        return self.offset + self.count * self.dtype.itemsize


def npy_header(dtype: np.dtype[Any], count: int) -> bytes:
    """Return the header of a 1-D npy file, byte for byte that of `numpy.save`."""
    header = BytesIO()
    described = {"descr": dtype.str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(header, described)
    return header.getvalue()


def parse_npy_header(head: bytes, url: str) -> NpyHeader:
    """Read the head of an npy file: its first 128 bytes, or all of it.

    Raises `CorruptFileError`: not an npy file, a damaged header, or not a 1-D array of integers in the byte order of the format.
    """
    if head[:6] != NPY_MAGIC:
        raise CorruptFileError(
            f"{url} begins with {head[:6]!r}, expected {NPY_MAGIC!r}: not an npy file. Files named .npy without a"
            " header (raw memmaps) must be converted first",
            url=url,
        )
    width = 2 if head[6:8] == b"\x01\x00" else 4  # bytes of the header's own length: 2 in version 1.0, then 4
    offset = 8 + width + int.from_bytes(head[8 : 8 + width], "little")
    try:
        fields = ast.literal_eval(head[8 + width : offset].decode("utf-8").strip())
        dtype, shape = np.dtype(fields["descr"]), tuple(fields["shape"])
    except (ValueError, TypeError, KeyError, SyntaxError, RecursionError, MemoryError) as error:
        raise CorruptFileError(
            f"{url}: the npy header (bytes 0 to {offset} of the file) cannot be read: {error}; write the file again",
            url=url,
        ) from error
    if len(shape) != 1 or dtype.kind not in "iu" or type(shape[0]) is not int or shape[0] < 0:
        raise CorruptFileError(
            f"{url} holds an array of shape {shape} and type {dtype}, expected one dimension of integers; it is not"
            " part of a ragged token shard",
            url=url,
        )
    if not dtype.isnative:  # kernels read the bytes as they are
        little = dtype.newbyteorder("<").str
        raise CorruptFileError(
            f"{url} holds integers of type {dtype.str}, whose highest byte comes first; expected {little}, as token shards have it. Save the array anew:"
            f" array.astype({little!r})",
            url=url,
        )
    return NpyHeader(dtype, shape[0], offset)


SIDECAR_VERSION = 1
MAX_SIDECAR_BYTES = 1 << 20  # a larger file of this name is something else
SIDECAR_START = b'{\n  "checksums": {'
"""Each record of origin begins so, a torn one too."""


class SpecialToken(Struct, frozen=True):
    """A token that the writer put around every document."""

    token: str  # its name in the vocabulary
    id: int  # its id


class TokenizerRecord(Struct, frozen=True):
    """Tokenizer that made the ids."""

    fingerprint: str  # xxh3-128 of the tokenizer's JSON bytes, hex
    file: str | None  # file name without folders; None if the tokenizer was given as text
    vocab_size: int  # largest id + 1, added tokens included
    # what stands before and after every document
    bos: SpecialToken | None = None
    eos: SpecialToken | None = None
    # an engine that was used in its place until it gave other ids, and for which text
    distrusts: str | UnsetType = UNSET

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the ids on disk: the same for all shards of one tokenizer."""
        return token_dtype(self.vocab_size - 1)


class SpellingRecord(Struct, frozen=True):
    """Treatment of special tokens that texts spell out; left out of the sidecar where none does and text is what they would become."""

    in_text: str  # ``text``, ``encode`` or ``refuse``, see `dolma_dask.tokens.spelled`
    documents: int | None = None  # documents that do; None: nobody looked


class SourceRecord(Struct, frozen=True):
    """Document shard that the tokens come from."""

    # relative to the dataset, so that moving the dataset changes no byte; of documents of several shards the folder of these
    path: str
    digests: Mapping[str, str]  # what the caller knows of it, such as ``ids_digest`` and ``content_digest``


class RaggedSidecar(Struct, frozen=True):
    """Content of ``<stem>.json``."""

    dtype: str  # npy name of the id type, such as ``<u2``
    # size of the two files
    documents: int
    tokens: int
    max_id: int | None  # largest id that occurs; None without tokens
    tokenizer: TokenizerRecord
    source: SourceRecord | None
    checksums: Mapping[str, str]  # xxh3-128 (hex) of the other files: ``data`` and ``len``, headers included
    format: str | UnsetType = UNSET  # see `dolma_dask.formats.token_files`; left out of numpy's
    special_tokens: SpellingRecord | UnsetType = UNSET
    # documents with characters that the tokenizer does not know and drops
    documents_with_lost_characters: int | UnsetType = UNSET
    version: int = SIDECAR_VERSION  # version of this record

    def to_json(self) -> bytes:
        """Bytes of the file: the same facts give the same bytes."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=2) + b"\n"


def parse_sidecar(content: bytes, url: str) -> RaggedSidecar:
    """Read a sidecar.

    Raises `CorruptFileError`: not a sidecar, or one of a later version.
    """
    try:
        sidecar = msgspec.json.decode(content, type=RaggedSidecar)
    except NOT_JSON as error:
        raise CorruptFileError(
            f"{url} is not the record of a token shard: {error}; move it away to read the pair without its"
            " record, or write the shard again",
            url=url,
        ) from error
    if sidecar.version > SIDECAR_VERSION:
        raise CorruptFileError(
            f"{url} has version {sidecar.version}, this release reads up to {SIDECAR_VERSION}; upgrade dolma_dask",
            url=url,
            version=sidecar.version,
        )
    return sidecar
