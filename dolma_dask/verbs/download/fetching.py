"""One object: fetched until it is all there, proved to be whole, and published."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from dolma_dask.errors import CorruptFileError
from dolma_dask.io.decompress import compression_of, read_pieces
from dolma_dask.io.files import is_web
from dolma_dask.io.objects import BrokenOffError, Source, Version, shown
from dolma_dask.io.parquet import open_parquet
from dolma_dask.io.partial import Partial
from dolma_dask.io.stored import StoredFile
from dolma_dask.io.web import Web

COPIES = 4
"""Times that an object is fetched whose bytes are not what its name says; two equal ones are enough to know that it is broken at its source."""


@dataclass(frozen=True)
class Access:
    """How sources are read."""

    connections: int = 8
    timeout: float = 30.0
    patience: float = 300.0

    def source(self, url: str) -> Source:
        """Return the source of a URL."""
        kind = Web if is_web(url) else Source
        return kind(self.connections, self.timeout, self.patience)


def fetch_whole(source: Source, url: str, part: Partial) -> tuple[Version, str]:
    """Fetch an object into its partial file, and return its version, with its size, and the checksum of its bytes.

    Raises `FileNotFoundError`: there is none. Raises `CorruptFileError`: it is broken at its source. Raises `StoreError`: see `Source.persistently`.
    """
    seen: set[str] = set()
    for copy in range(1, COPIES + 1):
        fetch(source, url, part)
        version = part.version or Version()
        checksum, damage = _proved(url, part)
        if not damage:
            return Version(part.bytes, version.stamp, version.if_range), checksum
        part.discard()
        if checksum in seen or copy == COPIES:
            raise CorruptFileError(
                f"{shown(url)} is broken at its source: {damage} (fetched {copy} times); expected a whole file. Leave it out with --on-broken record, and tell "
                "those who publish it.",
                url=shown(url),
            )
        seen.add(checksum)
    raise AssertionError("the last copy returns or raises")


def fetch(source: Source, url: str, part: Partial) -> None:
    """Fetch what a partial file lacks, in as many attempts as it takes."""

    def attempt() -> None:
        with source.open(url, part.bytes, part.version) as answer:
            if answer.start != part.bytes or not answer.start:
                part.begin(answer.version)
            while data := answer.read():
                part.write(memoryview(data))
        if part.bytes != (part.bytes if answer.version.bytes is None else answer.version.bytes):
            raise _wrong_size(part, answer.version)

    try:
        if part.version is None or part.version.bytes != part.bytes:
            source.persistently(url, attempt, lambda: part.bytes)
    finally:
        part.close()


def _wrong_size(part: Partial, version: Version) -> BrokenOffError:
    error = BrokenOffError(f"the connection ended at byte {part.bytes:,} of {version.bytes or 0:,}")
    if part.bytes > (version.bytes or 0):
        part.discard()
    return error


def _proved(url: str, part: Partial) -> tuple[str, str]:
    """Return the checksum of what was received, and how it is damaged, if it is."""
    name = shown(url)
    stored = StoredFile(part.url)
    try:
        for _ in _read_through(stored, name):
            pass
        return stored.checksum, ""
    except (CorruptFileError, pa.ArrowException) as error:
        stored.hash_rest()
        return stored.checksum, str(error).replace(part.url, "").strip(": ").partition("; expected")[0]
    finally:
        stored.close()


def _read_through(stored: StoredFile, name: str) -> Iterator[None]:
    if name.endswith(".parquet"):
        with open_parquet(stored.url):
            yield None
        stored.hash_rest()
        return
    for _ in read_pieces(stored, compression_of(name)) if compression_of(name) else ():
        yield None
    stored.hash_rest()
