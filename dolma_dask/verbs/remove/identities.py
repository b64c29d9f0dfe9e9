"""Which rows of a file are of documents that were taken down: by their source and id, in documents, attributes, lines and tables.

A line that cannot be read is one of a listed document if its bytes say so: any ``"id"`` in it, which may be that of something within it. Rows without a source
match if a listed document has their id.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.formats.documents import is_string
from dolma_dask.formats.json import NOT_JSON
from dolma_dask.io.documents import DocumentFile
from dolma_dask.io.id_keys import IdList, contains
from dolma_dask.io.id_lists import IdListFile
from dolma_dask.io.parquet import open_parquet
from dolma_dask.reading.tombstones import Tombstones, read_entries
from dolma_dask.text import compute as pc
from dolma_dask.verbs.remove.rewriting import is_table, lines_of

Rows = NDArray[np.int64]

_MIN_ID = 4
"""Characters of an id that is looked for anywhere."""

_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d+)')
_WHOLE = re.compile(rb"-?\d+")
_BETWEEN = re.compile(rb"[\t\r\n,;|<>]")
_NUMBER = re.compile(rb":\s*(-?\d+)\s*(?=[,}])")
"""A number in an object of JSON, as `convert` takes it for an id."""

_SOURCE = re.compile(rb'"source"\s*:\s*("(?:[^"\\]|\\.)*")')


class Wanted(Struct, frozen=True, dict=True):
    """Documents that are looked for; small, goes to workers, which read tombstones and list where they need them."""

    tombstones: Tombstones
    listed: IdList | None  # None: those with a tombstone alone
    found: frozenset[str] = frozenset()  # ids that were found, if only their digests are known

    def with_ids(self, ids: Iterable[str]) -> "Wanted":
        """Return the same, with further ids in clear."""
        return Wanted(self.tombstones, self.listed, self.found.union(ids))

    @property
    def ids(self) -> frozenset[str]:
        """Ids in clear, for rows without a source."""
        return _ids_in_clear(self.tombstones.urls, *self._list, self.found)

    def find(self, sources: pa.Array, ids: pa.Array) -> NDArray[np.bool_]:
        """Tell which rows (n,) are of them."""
        ids, sources = ids.cast(pa.large_string()), sources.cast(pa.large_string())
        found = self.find_named(sources, ids)
        if sources.null_count:
            known = pc.is_in(ids, pa.array(sorted(self.ids), pa.large_string()))
            found |= np.asarray(pc.and_(known, sources.is_null()))
        return found

    def find_named(self, sources: pa.LargeStringArray, ids: pa.LargeStringArray) -> NDArray[np.bool_]:
        """Tell which rows (n,) are of them by what they say: a row without a source only if its id was listed for any."""
        found: NDArray[np.bool_] = self.tombstones.find(sources, ids)
        return found if self.listed is None else found | contains(self.listed, sources, ids)

    def is_in(self, raw: bytes) -> bool:
        """Tell whether bytes that may be no JSON are a record of one of them: by its id, of broken JSON by any id in it, or where there is none by one in quotes."""
        source, ids = _named_in(raw)
        if ids:
            sources = pa.array([source] * len(ids), pa.large_string())
            return bool(self.find(sources, pa.array(ids, pa.large_string())).any())
        return self.is_quoted_in(raw)

    def is_quoted_in(self, text: bytes) -> bool:
        """Tell whether one of the ids stands in quotes in a text, as JSON spells it; short ones, which may be anything, are left out."""
        return not self._spelled.isdisjoint(text.split(b'"'))

    def is_field_in(self, text: bytes) -> bool:
        """Tell whether one of the ids stands in a text in quotes, as a number of JSON, or as a line, a cell of a table or a text between tags."""
        if self.is_quoted_in(text) or not self._spelled.isdisjoint(_BETWEEN.split(text)):
            return True
        return self._has_numbers and not self._spelled.isdisjoint(_NUMBER.findall(text))

    @cached_property
    def _has_numbers(self) -> bool:
        return any(map(_WHOLE.fullmatch, self._spelled))

    @property
    def _spelled(self) -> frozenset[bytes]:
        return _spelled(self.tombstones.urls, *self._list, self.found)

    @property
    def _list(self) -> tuple[str, str]:
        """URL and checksum of the list; empty if there is none."""
        return ("", "") if self.listed is None else (self.listed.facts.url, self.listed.facts.checksum)


@lru_cache(maxsize=4)
def _ids_in_clear(urls: tuple[str, ...], url: str, checksum: str, found: frozenset[str]) -> frozenset[str]:
    entries = (entry.id for one in urls for entry in read_entries(one))
    listed = (one for block in (IdListFile(url) if url else ()) for one in block.ids.to_pylist())
    return found.union(listed, (one for one in entries if one is not None))


@lru_cache(maxsize=4)
def _spelled(urls: tuple[str, ...], url: str, checksum: str, found: frozenset[str]) -> frozenset[bytes]:
    ids = [one for one in _ids_in_clear(urls, url, checksum, found) if len(one) >= _MIN_ID]
    spelled = (json.dumps(one, ensure_ascii=ascii)[1:-1] for one in ids for ascii in (True, False))
    return frozenset(one.encode() for one in spelled)


def _first(pattern: re.Pattern[bytes], raw: bytes) -> str | None:
    return next(iter(_all(pattern, raw)), None)


def _all(pattern: re.Pattern[bytes], raw: bytes) -> list[str]:
    """Return the different values that stand in bytes, in their order."""
    values = dict[str, None]()
    for found in pattern.finditer(raw):
        with suppress(*NOT_JSON):
            values[str(msgspec.json.decode(found[1]))] = None
    return list(values)


def _named_in(raw: bytes) -> tuple[str | None, list[str]]:
    """Return the source and the id of a record; of one that is no JSON all ids, and a source only if nothing is within that it could be of."""
    try:
        row = _decoder.decode(raw)
    except NOT_JSON:
        row = _Line()
    if (own := _text(row.id)) is not None:
        return _text(row.source), [own]
    return _first(_SOURCE, raw) if raw.count(b"{") == 1 else None, _all(_ID, raw)


class FoundRows(Struct, frozen=True):
    """Rows of a file that are of documents that were taken down."""

    rows: tuple[int, ...]
    total: int
    identities: tuple[tuple[str, str], ...] = ()  # source and id of each that can be read
    guessed: tuple[
        int, ...
    ] = ()  # rows without a source, whose id is that of a listed document of some source
    others: int = 0  # rows among those that were asked for that are of another document


def find_documents(url: str, wanted: Wanted, source: str | None) -> FoundRows:
    """Look for rows of documents; those that lack a source have this one."""
    documents = DocumentFile(url, ("id", "source"), source=source or "", ids_as_text=True, checksum=False)
    rows: list[int] = []
    identities: list[tuple[str, str]] = []
    total = 0
    for block in documents:
        ids, sources = (block.batch.column(name) for name in ("id", "source"))
        at = np.flatnonzero(wanted.find(sources, ids))
        rows += (at + block.first_row).tolist()
        identities += zip(sources.take(at).to_pylist(), ids.take(at).to_pylist(), strict=True)
        rows += [record.row for record in block.bad if wanted.is_in(record.raw)]
        total = block.first_row + block.num_rows
    return FoundRows(tuple(sorted(rows)), total, tuple(identities))


def find_rows(url: str, wanted: Wanted, expected: Sequence[int] = ()) -> FoundRows:
    """Look for rows of a file of lines or of a table with ids; `expected` (sorted) are those that should be found."""
    rows, guessed, others, total = list[int](), list[int](), 0, 0
    asked = np.array(expected, np.int64)
    for sources, ids, first in _identities(url):
        found = wanted.find(sources, ids)
        rows += (np.flatnonzero(found) + first).tolist()
        if sources.null_count:
            named = wanted.find_named(sources, ids)
            guessed += (np.flatnonzero(found & ~named) + first).tolist()
        total = first + len(ids)
        own = asked[(asked >= first) & (asked < total)] - first
        others += int((np.asarray(ids.is_valid())[own] & ~found[own]).sum())
    return FoundRows(tuple(rows), total, guessed=tuple(guessed), others=others)


def _identities(url: str) -> Iterator[tuple[pa.Array, pa.Array, int]]:
    return _of_table(url) if is_table(url) else _of_lines(url)


class _Line(Struct):
    id: Any = None
    source: Any = None


_decoder = msgspec.json.Decoder(_Line)


def _of_lines(url: str) -> Iterator[tuple[pa.Array, pa.Array, int]]:
    for lines, first in lines_of(url):
        rows = [_identity(line) for line in lines]
        yield *(pa.array(column, pa.large_string()) for column in zip(*rows, strict=True)), first


def _identity(line: bytes) -> tuple[str | None, str | None]:
    """Return source and id of a line."""
    try:
        row = _decoder.decode(line)
    except NOT_JSON:
        return _first(_SOURCE, line), _first(_ID, line)
    return _text(row.source), _text(row.id)


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _of_table(url: str) -> Iterator[tuple[pa.Array, pa.Array, int]]:
    first = 0
    with open_parquet(url) as file:
        schema = file.schema_arrow
        if "id" not in schema.names:
            return
        names = [
            name for name in ("source", "id") if name in schema.names and _is_text(schema.field(name).type)
        ]
        for batch in file.iter_batches(columns=names):
            nothing = pa.nulls(batch.num_rows, pa.large_string())
            sources, ids = (
                batch.column(name).cast(pa.large_string()) if name in names else nothing
                for name in ("source", "id")
            )
            yield sources, ids, first
            first += batch.num_rows


def _is_text(kind: pa.DataType) -> bool:
    return is_string(kind) or pa.types.is_integer(kind)
