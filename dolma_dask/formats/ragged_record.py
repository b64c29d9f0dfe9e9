"""The record beside a ragged token shard: which tokenizer and which source made it, and what it must hash to.

``<stem>.json`` is for people and for our own reader; tools that read the pair of npy files ignore it. It holds no
time and no absolute path, so the same input gives the same bytes on any machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from dolma_dask.errors import CorruptFileError
from dolma_dask.formats.ragged import token_dtype

SIDECAR_VERSION = 1
MAX_SIDECAR_BYTES = 1 << 20  # a larger file of this name is something else


@dataclass(frozen=True)
class SpecialToken:
    """A token that the writer put around every document."""

    token: str  # its name in the vocabulary
    id: int  # its id


@dataclass(frozen=True)
class TokenizerRecord:
    """Tokenizer that made the ids."""

    fingerprint: str  # xxh3-128 of the tokenizer's JSON bytes, hex
    file: str | None  # file name without folders; None if the tokenizer was given as text
    vocab_size: int  # largest id + 1, added tokens included
    # what stands before and after every document
    bos: SpecialToken | None = None
    eos: SpecialToken | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the ids on disk: the same for all shards of one tokenizer."""
        return token_dtype(self.vocab_size - 1)


@dataclass(frozen=True)
class SourceRecord:
    """Document shard that the tokens come from."""

    path: str  # path relative to the dataset, so that moving the dataset changes no byte
    digests: Mapping[str, str]  # what the caller knows of it, such as ``ids_digest`` and ``content_digest``


@dataclass(frozen=True)
class Checksums:
    """xxh3-128 (hex) of the two npy files, headers included."""

    data: str
    len: str


@dataclass(frozen=True)
class RaggedSidecar:
    """Content of ``<stem>.json``."""

    dtype: str  # npy name of the id type, such as ``<u2``
    # size of the two files
    documents: int
    tokens: int
    max_id: int | None  # largest id that occurs; None without tokens
    tokenizer: TokenizerRecord
    source: SourceRecord | None
    checksums: Checksums
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
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
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
