"""Benchmarks of the user's, whose items documents are compared with: JSON lines, Parquet, or text with an item in each line."""

import json
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from threading import RLock
from typing import Any

import xxhash
from msgspec import Struct

from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.stream import compression_of
from dolma_dask.sources.benchmark_cache import STORED_VERSION, from_cache
from dolma_dask.sources.benchmark_items import BenchmarkFile, Items
from dolma_dask.sources.benchmark_rows import KINDS, kind_of
from dolma_dask.sources.naming import list_raw
from dolma_dask.taggers.contamination import Benchmarks
from dolma_dask.taggers.labels import check_names
from dolma_dask.text.tables import table_versions

VERSION = 1
"""Raised whenever the same benchmarks give another table."""

FEWEST_WORDS = 8
"""Words of the shortest text that is compared, whole if it is shorter than an n-gram: what GPT-3 took at least."""

_opened: dict["Comparison", Benchmarks] = {}
_opening = RLock()


class Comparison(Struct, frozen=True):
    """Benchmarks by their files, and how texts are compared with them."""

    files: tuple[BenchmarkFile, ...]
    fields: tuple[str, ...]  # of an item, each a text by itself; dots lead into objects
    by: str  # field with the name of the benchmark; empty: that of the file
    ngram: int

    @classmethod
    def of(cls, inputs: Sequence[str], fields: Sequence[str], by: str | None, ngram: int) -> "Comparison":
        """Find the files (files, folders or globs) and their checksums.

        Raises `UsageError`: there are none, or two that have one name.
        """
        base, found = list_raw(inputs)
        for info in found:
            if not kind_of(info.path):
                raise UsageError(
                    f"{files.join(base, info.path)} is of no kind that is read as a benchmark; expected {', '.join(KINDS)}, also in gzip or zstd. Rename it, or leave it out."
                )
        names = _names([info.path for info in found])
        check_names(names, "benchmarks")
        urls = [files.join(base, info.path) for info in found]
        parts = zip(urls, names, map(files.checksum, urls), strict=True)
        return cls(tuple(BenchmarkFile(*part) for part in parts), tuple(fields), by or "", ngram)

    @property
    def params(self) -> Mapping[str, Any]:
        """What decides the outcome."""
        by = {"by": self.by} if self.by else {}
        read = [[file.name, kind_of(file.url), file.checksum] for file in self.files]
        return {"against": read, "fields": list(self.fields), "ngram": self.ngram, "version": VERSION, **by}

    def opened(self) -> Benchmarks:
        """Return the items and their n-grams.

        Raises `DataError`: a file cannot be read; `UsageError`: one has no such fields, or nothing in it can be compared; `SourceChangedError`: one is not as it was when the command began.
        """
        with _opening:
            if self not in _opened:
                given = json.dumps([self.params, STORED_VERSION, *table_versions()], sort_keys=True)
                _opened[self] = from_cache(xxhash.xxh3_128_hexdigest(given.encode()), self._read)
            return _opened[self]

    def notes(self) -> Iterator[str]:
        """Yield what people should know of items that are short."""
        known = self.opened()
        for name, (items, whole, left_out) in zip(known.names, known.totals, strict=True):
            if whole:
                yield f"{name}: {whole:,} of {counted(items, 'item')} compared as a whole: fewer than {self.ngram} words"
            if left_out:
                yield f"{name}: {left_out:,} of {counted(items, 'item')} not compared: fewer than {self._least} words"

    @property
    def _least(self) -> int:
        return min(FEWEST_WORDS, self.ngram)

    def _read(self) -> Benchmarks:
        collected = Items(self.fields, self.by)
        for file in self.files:
            collected.add(file)
        return collected.benchmarks(self.ngram, self._least)


def _names(paths: Sequence[str]) -> list[str]:
    """Return the names of files: their own without suffix, with that of the folder before it where several have one."""
    stems = [_stem(path) for path in paths]
    several = Counter(stems)
    folders = [posixpath.basename(posixpath.dirname(path)) for path in paths]
    return [
        f"{folder}_{stem}" if several[stem] > 1 and folder else stem
        for folder, stem in zip(folders, stems, strict=True)
    ]


def _stem(path: str) -> str:
    name = posixpath.basename(path)
    name = name[: name.rfind(".")] if compression_of(name) else name
    return name.rpartition(".")[0] or name
