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
    """A token that the writer put around every document.

    Attributes
    ----------
    token : str
        Its name in the vocabulary.
    id : int
        Its id.
    """

    token: str
    id: int


@dataclass(frozen=True)
class TokenizerRecord:
    """Which tokenizer made the ids.

    Attributes
    ----------
    fingerprint : str
        xxh3-128 of the tokenizer's JSON bytes, hex.
    file : str or None
        File name without folders; None if the tokenizer was given as text.
    vocab_size : int
        Largest id + 1, added tokens included.
    bos, eos : SpecialToken or None
        What stands before and after every document.
    """

    fingerprint: str
    file: str | None
    vocab_size: int
    bos: SpecialToken | None = None
    eos: SpecialToken | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the ids on disk: the same for all shards of one tokenizer."""
        return token_dtype(self.vocab_size - 1)


@dataclass(frozen=True)
class SourceRecord:
    """Which document shard the tokens come from.

    Attributes
    ----------
    path : str
        Path relative to the dataset, so that moving the dataset changes no byte.
    digests : mapping of str to str
        What the caller knows of it, such as ``ids_digest`` and ``content_digest``.
    """

    path: str
    digests: Mapping[str, str]


@dataclass(frozen=True)
class Checksums:
    """xxh3-128 (hex) of the two npy files, headers included."""

    data: str
    len: str


@dataclass(frozen=True)
class RaggedSidecar:
    """Content of ``<stem>.json``.

    Attributes
    ----------
    dtype : str
        npy name of the id type, such as ``<u2``.
    documents, tokens : int
        Size of the two files.
    max_id : int or None
        Largest id that occurs; None without tokens.
    tokenizer : TokenizerRecord
    source : SourceRecord or None
    checksums : Checksums
    version : int
        Version of this record.
    """

    dtype: str
    documents: int
    tokens: int
    max_id: int | None
    tokenizer: TokenizerRecord
    source: SourceRecord | None
    checksums: Checksums
    version: int = SIDECAR_VERSION

    def to_json(self) -> bytes:
        """Bytes of the file: the same facts give the same bytes."""
        return msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=2) + b"\n"


def parse_sidecar(content: bytes, url: str) -> RaggedSidecar:
    """Read a sidecar.

    Parameters
    ----------
    content : bytes
        The file.
    url : str
        Its name, for the message.

    Returns
    -------
    RaggedSidecar

    Raises
    ------
    CorruptFileError
        Not a sidecar, or one of a later version.
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
