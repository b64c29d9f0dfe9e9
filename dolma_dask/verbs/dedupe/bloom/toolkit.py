"""Bloom filters of the Dolma toolkit, release 1.2.1, read: what is in them can be flagged, nothing is added.

A file holds, all little-endian: magic, version 1, number of hashes (uint32 each), four words for each hash, the number of words of 32 bits, these words. A text is hashed
as aHash does without the instructions of AES, as the toolkit's packages for x86-64 are built; a build with them hashes otherwise, and nothing in the file says so.
"""

import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from msgspec import Struct

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.io import files
from dolma_dask.text.bits import address_of, byte_at, high_product
from dolma_dask.text.columns import for_kernel, string_parts
from dolma_dask.text.kernels import Bools, Bytes, Counts, Int, Words, kernel
from dolma_dask.text.xxh3 import word32, word64
from dolma_dask.verbs.dedupe.bloom.filters import (
    BLOCK_BITS,
    FilterHead,
    Keys,
    Seen,
    open_own_filter,
    replaced,
)

MAGIC = (0x81F0F117).to_bytes(4, "little")

NOTHING_FOUND = (
    "nothing here is in the filter of the Dolma toolkit. It is read as the toolkit's packages for x86-64 write it; of a build for other processors, or with "
    "instructions of AES, it cannot be read, and looks like this: make the filter again with --bloom"
)

_START = struct.Struct("<4sII")
_MIXED = (0x452821E638D01377, 0xBE5466CF34E90C6C, 0xC0AC29B7C97C50DD, 0x3F84D5B5B5470917)
"""What aHash mixes into seeds: digits of pi."""

_MULTIPLE = np.uint64(6364136223846793005)
_ONE, _END = np.uint64(1), np.uint64(0xFF)

Bits = npt.NDArray[np.uint32]


@kernel
def _fold(one: np.uint64, other: np.uint64) -> np.uint64:
    return (one * other) ^ high_product(one, other)


@kernel
def _turned(word: np.uint64, places: np.uint64) -> np.uint64:
    return (word << places) | (word >> ((np.uint64(64) - places) & np.uint64(63))) if places else word


@kernel
def _taken(state: np.uint64, pad: np.uint64, one: np.uint64, other: np.uint64) -> np.uint64:
    """Take sixteen bytes, which are masked already, into the state of a hash."""
    return _turned((state + pad) ^ _fold(one, other), np.uint64(23))


@kernel
def _hash(
    at: Int, size: Int, pad: np.uint64, state: np.uint64, third: np.uint64, fourth: np.uint64
) -> np.uint64:
    """Hash a list of one text of `size` bytes at an address."""
    state = _fold(_ONE ^ state, _MULTIPLE)
    state = (state + np.uint64(size)) * _MULTIPLE
    end = at + size
    if size > 16:
        state = _taken(state, pad, word64(end - 16) ^ third, word64(end - 8) ^ fourth)
        while end - at > 16:
            state = _taken(state, pad, word64(at) ^ third, word64(at + 8) ^ fourth)
            at += 16
    elif size > 8:
        state = _taken(state, pad, word64(at) ^ third, word64(end - 8) ^ fourth)
    elif size >= 4:
        state = _taken(state, pad, word32(at) ^ third, word32(end - 4) ^ fourth)
    elif size >= 2:
        first = np.uint64(byte_at(at)) | np.uint64(byte_at(at + 1)) << np.uint64(8)
        state = _taken(state, pad, first ^ third, np.uint64(byte_at(end - 1)) ^ fourth)
    elif size == 1:
        first = np.uint64(byte_at(at))
        state = _taken(state, pad, first ^ third, first ^ fourth)
    else:
        state = _taken(state, pad, third, fourth)
    state = _fold(_END ^ state, _MULTIPLE)
    return _turned(_fold(state, pad), state & np.uint64(63))


@kernel
def find_texts(data: Bytes, offsets: Counts, seeds: Words, bits: Bits, found: Bools) -> None:
    """Tell which texts are in a filter; `seeds` (hashes, 4)."""
    base, size = address_of(data), np.uint64(32 * bits.size)
    for row in range(found.size):
        number, is_there = np.int64(0), True
        while is_there and number < seeds.shape[0]:
            bit = (
                _hash(
                    base + offsets[row], offsets[row + 1] - offsets[row],
                    seeds[number, 0], seeds[number, 1], seeds[number, 2], seeds[number, 3],
                )
                % size
            )  # fmt: skip
            word = np.uint64(bits[bit >> np.uint64(5)])
            is_there = (word >> (bit & np.uint64(31))) & _ONE == _ONE
            number += 1
        found[row] = is_there


class ToolkitFilter(Struct, frozen=True):
    """A filter in a file of the toolkit; goes to workers, which open it once."""

    url: str
    head: FilterHead

    def contains(self, keys: Keys, texts: pa.LargeStringArray) -> Bools:
        """Tell which texts (n,) are in the filter; `keys` are not used, since the toolkit hashes in another way."""
        offsets, data = string_parts(texts)
        found = np.empty(len(texts), np.bool_)
        find_texts(data, offsets, *_opened(self.url, self.head.digest), found)
        return found


@cache
def _opened(url: str, digest: str) -> tuple[Words, Bits]:
    seeds, bits = read_toolkit_filter(url)
    if _digest(seeds, bits) != digest:
        raise replaced(url)
    return seeds, bits


def _digest(seeds: Words, bits: Bits) -> str:
    return xxhash.xxh3_128_hexdigest(seeds.tobytes() + bits.tobytes())


def read_toolkit_filter(url: str) -> tuple[Words, Bits]:
    """Return seeds (hashes, 4) and words of a file."""
    stored = files.read_bytes(url)
    _, version, hashes = _START.unpack_from(stored) if len(stored) >= _START.size else (b"", 0, 0)
    at = _START.size + 32 * hashes
    words = int.from_bytes(stored[at : at + 8], "little")
    if version != 1 or not hashes or not words or len(stored) != at + 8 + 4 * words:
        raise CorruptFileError(
            f"{url} begins as a Bloom filter of the Dolma toolkit, and has {len(stored):,} bytes of version {version} with {hashes:,} hashes; expected one of "
            "version 1, whole. Copy it again.",
            url=url,
        )
    seeds = np.frombuffer(stored, "<u8", 4 * hashes, _START.size).reshape(-1, 4).astype(np.uint64)
    return for_kernel(seeds ^ np.array(_MIXED, np.uint64)), for_kernel(
        np.frombuffer(stored, "<u4", words, at + 8).astype(np.uint32)
    )


def open_filter(url: str, keys: Mapping[str, Any]) -> Seen:
    """Return the filter in a file, of this package or the toolkit, whole and of keys of this kind."""
    if files.stat(url) is not None:
        with files.open_read(url) as handle:
            if handle.read(len(MAGIC)) == MAGIC:
                return open_toolkit_filter(url, keys)
    return open_own_filter(url, keys)


def open_toolkit_filter(url: str, keys: Mapping[str, Any]) -> ToolkitFilter:
    """Return the filter in a file of the toolkit, if it can tell of keys of this kind."""
    others = [name for name in ("ngram", "within") if name in keys] + ["by='id'"] * (keys["of"] == "id")
    others += [f"by={keys['of']!r}, a {kind}," for kind in keys.get("kinds", {}).values() if kind != "string"]
    if others:
        raise UsageError(
            f"{url} is a filter of the Dolma toolkit, and {others[0]} was given; expected whole texts, paragraphs or strings of one field, which alone are looked "
            "for in it. Make the filter with --bloom."
        )
    seeds, bits = read_toolkit_filter(url)
    filled = float(np.bitwise_count(bits).sum()) / (32 * len(bits))
    blocks = -(-32 * len(bits) // BLOCK_BITS)
    return ToolkitFilter(
        url, FilterHead(keys, blocks, len(seeds), 0, filled ** len(seeds), _digest(seeds, bits))
    )
