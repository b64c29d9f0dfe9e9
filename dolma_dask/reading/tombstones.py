"""Tombstones: documents that were taken down, which nothing that is written below or from their root holds again.

``_tombstones/<digest>.jsonl`` below a root has an entry for each: the key of source and id, or of the id alone, where that was listed for any source
(`dolma_dask.formats.digests.keys128`); source and id in clear unless they are to be hidden; the reason and the day. A file is called after its keys and never
changed. ``<digest>.done`` beside it says that nothing below the root holds these documents any more. Cost: 60 ns per document and, once per process,
200 bytes per entry.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import xxhash
from msgspec import Struct

from dolma_dask.dataset import DEPTH
from dolma_dask.errors import CorruptFileError, StoreAccessError
from dolma_dask.formats import layout
from dolma_dask.formats.digests import keys128
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io import files
from dolma_dask.io.id_keys import entry_keys
from dolma_dask.io.id_lists import IdBlock
from dolma_dask.io.publish import publish
from dolma_dask.rules.membership import FREE, KeyTable
from dolma_dask.text.kernels import Bools, Words

REMOVED = "documents_removed"
"""Count of documents that are left out since they were taken down."""

LEVELS = 2 * DEPTH
"""Folders above a dataset or a folder of token files that may be the root of a takedown."""

_ENTRIES, _DONE = ".jsonl", ".done"


class Entry(Struct, frozen=True, omit_defaults=True):
    """A document that was taken down."""

    key: str  # 32 hexadecimal digits: of source and id, or of the id alone
    reason: str = ""
    day: str = ""  # such as 2025-01-31
    id: str | None = None  # None: hidden
    source: str | None = None  # None: any, or hidden


_decoder = msgspec.json.Decoder(Entry)
_encoder = msgspec.json.Encoder()


class Tombstones(Struct, frozen=True):
    """Files of tombstones that concern something; small, goes to workers."""

    urls: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    """Names of those whose documents may still be below their root: what is made meanwhile is known under a key of its own."""

    def __bool__(self) -> bool:
        return bool(self.urls)

    @property
    def params(self) -> dict[str, Any]:
        """What decides which documents are left out, for keys; nothing where all that is there is known to hold none of them."""
        return {"tombstones": list(self.pending)} if self.pending else {}

    @property
    def settled(self) -> tuple[str, ...]:
        """Those whose documents are nowhere below their root any more."""
        return tuple(url for url in self.urls if _stem(url) not in self.pending)

    def beside(self, own: "Tombstones") -> "Tombstones":
        """Return those of both; what these concern lies elsewhere than their root, where no takedown has looked, unless they are among its `own`."""
        others = tuple(_stem(url) for url in self.urls if url not in own.urls)
        return self.also(own).also(Tombstones(pending=others))

    def also(self, other: "Tombstones") -> "Tombstones":
        """Return those of both."""
        urls, pending = {*self.urls, *other.urls}, {*self.pending, *other.pending}
        return Tombstones(tuple(sorted(urls)), tuple(sorted(pending)))

    def find(self, sources: pa.LargeStringArray, ids: pa.LargeStringArray) -> Bools:
        """Tell which documents (n,) were taken down; a null id is none."""
        found: Bools = np.zeros(len(ids), np.bool_)
        if self.urls:
            table = _table(self.urls)
            for keys in (keys128(ids), keys128(sources, ids)):
                found |= table.find(*keys) != FREE
            if ids.null_count:
                found &= np.asarray(ids.is_valid())
        return found

    def has(self, block: IdBlock) -> bool:
        """Tell whether each entry of a list has a tombstone."""
        return bool(self.urls) and bool((_table(self.urls).find(*entry_keys(block)) != FREE).all())


def tombstones_above(*roots: str) -> Tombstones:
    """Return the tombstones of some roots and of the folders above them."""
    found = Tombstones()
    for folder in dict.fromkeys(folder for root in roots for folder in upwards(root)):
        found = found.also(tombstones_at(folder))
    return found


def tombstones_at(root: str) -> Tombstones:
    """Return the tombstones of a root."""
    folder = files.join(root, layout.TOMBSTONES)
    try:
        names = files.list_level(folder)[1]
    except StoreAccessError:
        if not files.is_web(root):
            raise
        names = []  # where nothing can be listed, buckets refuse what is not there
    stems = [name.removesuffix(_ENTRIES) for name in names if name.endswith(_ENTRIES)]
    pending = (stem for stem in stems if stem + _DONE not in names)
    return Tombstones(tuple(files.join(folder, stem + _ENTRIES) for stem in stems), tuple(pending))


def _stem(url: str) -> str:
    return url.rpartition("/")[2].removesuffix(_ENTRIES)


def upwards(root: str) -> Iterator[str]:
    """Yield a folder and those above it that may be the root of a takedown."""
    folder = files.normalize(root)
    for _ in range(LEVELS + 1):
        if not folder or folder == "/":
            return
        yield folder
        folder = files.parent(folder)


def read_entries(url: str) -> Iterator[Entry]:
    """Yield the entries of a file of tombstones.

    Raises `CorruptFileError`: a line is none. What was taken down must not come back because a file is damaged.
    """
    for number, line in enumerate(files.read_bytes(url).splitlines(), 1):
        try:
            entry = _decoder.decode(line)
            bytes.fromhex(entry.key)
        except (*NOT_JSON, ValueError) as error:
            raise CorruptFileError(
                f"{url}, line {number}: no tombstone ({error}); expected one as `remove` wrote it. Restore the file from a copy, or run `remove` again with "
                "its list and then delete this file.",
                url=url,
            ) from error
        yield entry


@lru_cache(maxsize=4)
def _table(urls: tuple[str, ...]) -> KeyTable:
    keys = [entry.key for url in urls for entry in read_entries(url)]
    words = np.frombuffer(bytes.fromhex("".join(keys)), ">u8").reshape(-1, 2).astype(np.uint64)
    return KeyTable(np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1]))


def entries_of(block: IdBlock, reason: str, day: str, *, hashed: bool) -> Iterator[Entry]:
    """Yield the tombstones of entries of a list."""
    high, low = entry_keys(block)
    for key, source, identity in zip(
        _hexadecimal(high, low), block.sources.to_pylist(), block.ids.to_pylist(), strict=True
    ):
        yield Entry(key, reason, day) if hashed else Entry(key, reason, day, identity, source)


def _hexadecimal(high: Words, low: Words) -> list[str]:
    return [f"{one:016x}{other:016x}" for one, other in zip(high.tolist(), low.tolist(), strict=True)]


def write_entries(root: str, entries: Sequence[Entry]) -> str:
    """Write tombstones, each once, to a file that is called after their keys; return its URL."""
    by_key = {entry.key: entry for entry in reversed(entries)}
    digest = xxhash.xxh3_64_hexdigest("".join(sorted(by_key)).encode())
    url = files.join(root, f"{layout.TOMBSTONES}/{digest}{_ENTRIES}")
    with publish(url) as out:
        for _, entry in sorted(by_key.items()):
            out.write(_encoder.encode(entry) + b"\n")
    return url


def settle(root: str) -> None:
    """Say of all tombstones of a root that nothing below it holds their documents any more."""
    for name in tombstones_at(root).pending:
        with publish(files.join(root, f"{layout.TOMBSTONES}/{name}{_DONE}")):
            pass
