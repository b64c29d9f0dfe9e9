"""Bloom filters of keys: a file that tells of any key whether it was there when the filter was made, wrongly so for a small share of those that were not.

A filter is cut into blocks of 4,096 bits. The upper half of a key chooses its block, the lower half its bits there, so that keys in order touch a filter from its
beginning to its end, and any range of keys makes a piece of it by itself. A file holds, all little-endian: `MAGIC`, version and length of the head (uint32 each); the head
as JSON, with what the keys are of, the shape and the xxh3-128 of the blocks; the xxh3-64 of all of this; zeros up to a multiple of `ALIGNED`; the blocks.
"""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Struct

from dolma_dask.display import byte_size
from dolma_dask.errors import CorruptFileError, SourceChangedError, UsageError
from dolma_dask.io import files
from dolma_dask.text.bits import mix
from dolma_dask.text.columns import for_kernel
from dolma_dask.text.kernels import Bools, Int, Words, kernel

MAGIC = b"DDBLOOM\n"
VERSION = 1
ALIGNED = 4096

BLOCK_BITS = 4096
BLOCK_WORDS = BLOCK_BITS // 64
PARTS = 1024
"""Blocks are a multiple of this, so that a bucket of the exchange has a piece of its own."""

RATE = 1e-6
"""Share of keys that are wrongly found, where neither it nor a size is given."""

MOST_HASHES = 48

_HEAD = struct.Struct("<8sII")
_READ = 1 << 22


Keys = tuple[Words, Words]
"""Upper and lower halves of keys, (n,) each."""


class Shape(Struct, frozen=True):
    """Size of a filter."""

    blocks: int
    hashes: int  # bits of a key

    @property
    def bytes(self) -> int:
        """Bytes of the blocks."""
        return self.blocks * BLOCK_BITS // 8


class Wanted(Struct, frozen=True):
    """A filter as it was ordered: by its size, or by keys and the share of others that are wrongly found."""

    size: int | None = None
    keys: int | None = None  # None: as many as there are
    rate: float = RATE

    def shape(self, there: int) -> Shape:
        """Return the shape for `there` keys, or the expected ones."""
        keys = max(self.keys or there, 1)
        if self.size is not None:
            return _with_hashes(max(self.size // (PARTS * BLOCK_BITS // 8), 1) * PARTS, keys)
        least = keys * math.log(1 / self.rate) / math.log(2) ** 2 / BLOCK_BITS / PARTS
        parts = max(math.ceil(least), 1)
        while expected_rate(shape := _with_hashes(parts * PARTS, keys), keys) > self.rate:
            parts += max(parts // 50, 1)
        fewer = (Shape(shape.blocks, hashes) for hashes in range(1, shape.hashes))
        return next((one for one in fewer if expected_rate(one, keys) <= self.rate), shape)


def _with_hashes(blocks: int, keys: int) -> Shape:
    """Return the shape with the best number of hashes."""
    best = round(blocks * BLOCK_BITS / keys * math.log(2))
    near = range(max(1, min(best - 4, MOST_HASHES - 4)), min(max(best, 1), MOST_HASHES) + 1)
    return min((Shape(blocks, hashes) for hashes in near), key=lambda shape: expected_rate(shape, keys))


def expected_rate(shape: Shape, keys: int) -> float:
    """Return the share of other keys that a filter of so many keys finds: blocks have more and fewer of them, by Poisson's law."""
    mean = keys / shape.blocks
    counts = np.arange(max(0, int(mean - 9 * math.sqrt(mean) - 9)), int(mean + 9 * math.sqrt(mean) + 40))
    logs = np.cumsum(np.log(np.maximum(np.arange(counts[-1] + 1), 1)))[counts]
    weights = np.exp(counts * math.log(mean) - mean - logs)
    filled = 1 - np.exp(counts * shape.hashes * math.log1p(-1 / BLOCK_BITS))
    return float((weights * filled**shape.hashes).sum())


@kernel
def _bit(low: np.uint64, number: Int, word: np.uint64) -> tuple[Int, np.uint64]:
    """Return the bit of a key by its number, and the word that the next ones are taken from: five from each."""
    place = number % 5
    if place == 0:
        word = mix(low + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15))
    return np.int64((word >> np.uint64(12 * place)) & np.uint64(BLOCK_BITS - 1)), word


@kernel
def _block(high: np.uint64, blocks: Int) -> Int:
    return np.int64(((high >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32))


@kernel
def add_keys(records: Words, blocks: Int, hashes: Int, first: Int, last: Words, bits: Words) -> Int:
    """Add the keys of sorted records to the blocks from `first` on, in `bits` (blocks * 64,); `last` (3,) is the last key and whether there is one.

    Returns how many different keys there are, besides the last one.
    """
    count: Int = 0
    for row in range(records.shape[0]):
        high, low = records[row, 0], records[row, 1]
        if last[2] == 1 and last[0] == high and last[1] == low:
            continue
        last[0], last[1], last[2] = high, low, np.uint64(1)
        count += 1
        base = (_block(high, blocks) - first) * BLOCK_WORDS
        word = np.uint64(0)
        for number in range(hashes):
            bit, word = _bit(low, number, word)
            bits[base + (bit >> 6)] |= np.uint64(1) << np.uint64(bit & 63)
    return count


@kernel
def _find_keys(high: Words, low: Words, blocks: Int, hashes: Int, bits: Words, found: Bools) -> None:
    """Tell which keys are in a filter."""
    for row in range(high.size):
        base = _block(high[row], blocks) * BLOCK_WORDS
        word, number, is_there = np.uint64(0), np.int64(0), True
        while is_there and number < hashes:
            bit, word = _bit(low[row], number, word)
            is_there = (bits[base + (bit >> 6)] >> np.uint64(bit & 63)) & np.uint64(1) == np.uint64(1)
            number += 1
        found[row] = is_there


def wrong_shares(bits: Words, hashes: int) -> float:
    """Return the sum over blocks of the share of other keys that each wrongly finds, by its bits."""
    filled = np.bitwise_count(bits.reshape(-1, BLOCK_WORDS)).sum(1) / BLOCK_BITS
    return float((filled**hashes).sum())


class Seen(Protocol):
    """A filter that says what was here before; goes to workers."""

    @property
    def head(self) -> "FilterHead": ...

    def contains(self, keys: Keys, texts: pa.LargeStringArray) -> Bools:
        """Tell which keys (n,) are in the filter; one of the toolkit looks for the texts of the keys instead."""
        ...


class FilterHead(Struct, frozen=True):
    """Facts about a filter, in its file."""

    keys: Mapping[str, Any]  # what they are of: filters of others tell nothing
    blocks: int
    hashes: int
    count: int  # different keys; 0: it is not known
    rate: float  # share of others that its bits wrongly find
    digest: str  # xxh3-128 of the blocks

    def encode(self) -> bytes:
        """Return what stands before the blocks."""
        text = msgspec.json.encode(self, order="sorted")
        head = _HEAD.pack(MAGIC, VERSION, len(text)) + text
        head += xxhash.xxh3_64_digest(head)
        return head + bytes(-len(head) % ALIGNED)

    @property
    def bytes(self) -> int:
        """Bytes of the blocks."""
        return Shape(self.blocks, self.hashes).bytes

    @property
    def text(self) -> str:
        """The filter in words, for summaries."""
        keys = f"{self.count:,} keys, " if self.count else ""
        return f"{byte_size(self.bytes)}, {keys}{self.hashes} hashes, finds {self.rate:.2g} of other keys"


class BloomFilter(Struct, frozen=True):
    """A filter in a file; goes to workers, which open it once."""

    url: str
    head: FilterHead
    offset: int  # of the blocks

    def contains(self, keys: Keys, texts: pa.LargeStringArray | None = None) -> Bools:
        """Tell which keys (n,) are in the filter."""
        high, low = keys
        found = np.empty(len(high), np.bool_)
        bits = _opened(self.url, self.offset, self.head.digest)
        _find_keys(for_kernel(high), for_kernel(low), self.head.blocks, self.head.hashes, bits, found)
        return found

    def check(self) -> None:
        """Raise `CorruptFileError` if the blocks are not those that were written."""
        _check_blocks(self.url, _parts(self.url, self.offset), self.head.digest)


@cache
def _opened(url: str, offset: int, digest: str) -> Words:
    """Return the blocks: a local file as it lies, shared by processes, another one in memory.

    Raises `SourceChangedError`: another filter is there by now. Raises `CorruptFileError`: the blocks are not those that were written.
    """
    if read_head(url).head.digest != digest:
        raise replaced(url)
    if files.is_local(url):
        bits = np.asarray(np.memmap(files.local_path(url), np.uint64, "r", offset))
    else:
        bits = np.frombuffer(files.read_bytes(url), np.uint64, offset=offset)
    # what this machine reads, which may be another than the one that has looked before
    _check_blocks(url, (bits[at : at + _READ] for at in range(0, len(bits), _READ)), digest)
    return for_kernel(bits)


def _check_blocks(url: str, parts: Iterable[Any], expected: str) -> None:
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    if digest.hexdigest() != expected:
        raise _damaged(url, f"blocks with checksum {digest.hexdigest()}, not {expected}")


def _parts(url: str, offset: int) -> Iterator[bytes]:
    with files.open_read(url) as handle:
        handle.seek(offset)
        while part := handle.read(_READ):
            yield part


def replaced(url: str) -> SourceChangedError:
    """Return the error that says that a filter is no more the one that a run began with."""
    return SourceChangedError(
        f"{url} was written while dedupe read it; expected one filter from beginning to end. Run the same command again when it is finished.",
        url=url,
    )


def read_head(url: str) -> BloomFilter:
    """Return the filter in a file, of which the head alone is read.

    Raises `UsageError`: there is none. Raises `CorruptFileError`: it is damaged, or something else.
    """
    known = files.stat(url)
    if known is None:
        raise UsageError(f"{url}: no such file; expected a Bloom filter that dedupe --bloom has written.")
    with files.open_read(url) as handle:
        start = _exactly(handle, _HEAD.size)
        if len(start) < _HEAD.size or not start.startswith(MAGIC):
            raise _damaged(url, f"a file that begins with {start[:8]!r}")
        _, version, size = _HEAD.unpack(start)
        if version != VERSION:
            raise _damaged(url, f"version {version} of the format, which this release does not know")
        rest = _exactly(handle, min(size, 1 << 20) + 8)
    text, checksum = rest[:size], rest[size:]
    if xxhash.xxh3_64_digest(start + text) != checksum:
        raise _damaged(url, "a head with another checksum than its own")
    head = msgspec.json.decode(text, type=FilterHead)
    offset = len(head.encode())
    if known.bytes != offset + head.bytes:
        raise _damaged(url, f"{known.bytes:,} bytes, not {offset + head.bytes:,}")
    return BloomFilter(url, head, offset)


def _exactly(handle: Any, size: int) -> bytes:
    parts = b""
    while len(parts) < size and (part := handle.read(size - len(parts))):
        parts += part
    return parts


def _damaged(url: str, found: str) -> CorruptFileError:
    return CorruptFileError(
        f"{url} has {found}; expected a Bloom filter as dedupe --bloom writes it. Copy it again, or make it again: --overwrite.",
        url=url,
    )


def open_own_filter(url: str, keys: Mapping[str, Any]) -> BloomFilter:
    """Return the filter in a file, whole and of keys of this kind."""
    found = read_head(url)
    if dict(found.head.keys) != dict(keys):
        raise UsageError(
            f"{url} is a filter of {_shown(found.head.keys)}; expected one of {_shown(keys)}, as these options compare."
        )
    found.check()
    return found


def _shown(keys: Mapping[str, Any]) -> str:
    kinds = keys.get("kinds", {})
    named = ((name, keys[name]) for name in ("unit", "of", "ngram", "within") if name in keys)
    return ", ".join(
        f"{name} {one} ({kinds[one]})" if one in kinds else f"{name} {one}" for name, one in named
    )
