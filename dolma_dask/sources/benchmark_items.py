"""Items of benchmarks, from all of their files, as the n-grams that documents are compared with."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.display import listed
from dolma_dask.errors import SourceChangedError, UsageError
from dolma_dask.io import files
from dolma_dask.minhash.ngrams import hash_tokens
from dolma_dask.sources.benchmark_rows import fields_of, read_rows, texts_at
from dolma_dask.taggers.contamination import Benchmarks
from dolma_dask.taggers.labels import check_names
from dolma_dask.text.kernels import Counts, Words
from dolma_dask.text.ngram_table import NgramTable


class BenchmarkFile(Struct, frozen=True):
    """A file of items."""

    url: str
    name: str  # of the benchmark, unless a field tells it
    checksum: str


class Items:
    """Items of files, one after the other, as hashes of words."""

    def __init__(self, fields: Sequence[str], by: str) -> None:
        self._fields, self._by = fields, by
        self._names: dict[str, int] = {}
        self._file_of: dict[str, str] = {}
        self._words: list[Words] = [np.empty(0, np.uint64)]
        self._sizes: list[Counts] = [np.empty(0, np.int64)]  # words of texts
        self._owners: list[Counts] = [np.empty(0, np.int64)]  # item of texts
        self._benchmarks: list[int] = []  # of items
        self._rows: list[int] = []

    def add(self, file: BenchmarkFile) -> None:
        """Read the items of a file."""
        if files.checksum(file.url) != file.checksum:
            raise SourceChangedError(
                f"{file.url} is not the file that was there when the command began. Run it again.",
                url=file.url,
            )
        texts, owners = list[str](), list[int]()
        before, found = len(self._rows), False
        first: Any = None
        for row, item in read_rows(file.url):
            first = first or item
            for field in self._fields:
                for text in [item] if isinstance(item, str) else texts_at(item, field.split(".")):
                    texts.append(text)
                    owners.append(len(self._rows))
                    found = True
            self._benchmarks.append(self._number(file, row, item))
            self._rows.append(row)
        if len(self._rows) == before:
            raise UsageError(
                f"{file.url} has no items; expected one or more. Leave it out, or get it anew.", url=file.url
            )
        if not found:
            raise UsageError(
                f"{file.url} has no text in {listed(self._fields)}; its first item has {listed(fields_of(first))}. Name the fields that are compared: "
                "--against-text question",
                url=file.url,
            )
        bounds, words = hash_tokens(pa.array(texts, pa.large_string()), unit="word")
        self._words.append(words)
        self._sizes.append(np.diff(bounds))
        self._owners.append(np.array(owners, np.int64))

    def _number(self, file: BenchmarkFile, row: int, item: Any) -> int:
        """Return the number of the benchmark of an item."""
        name = file.name
        if self._by:
            value = item.get(self._by) if isinstance(item, dict) else None
            if value is None or isinstance(value, dict | list):
                raise UsageError(
                    f"{file.url}, row {row}, has no name in the field {self._by!r}; expected that of its benchmark (--against-by).",
                    url=file.url,
                )
            name = str(value)
        if self._file_of.setdefault(name, file.url) != file.url:
            raise UsageError(
                f"items of the benchmark {name} are in {self._file_of[name]} and in {file.url}; expected one file, by whose rows they are named. Join the files.",
                url=file.url,
            )
        return self._names.setdefault(name, len(self._names))

    def benchmarks(self, ngram: int, least: int) -> Benchmarks:
        """Return all items with their n-grams."""
        check_names(list(self._names), "benchmarks")
        sizes, owners = np.concatenate(self._sizes), np.concatenate(self._owners)
        groups = np.array(self._benchmarks, np.int64)
        longest = np.zeros(len(groups), np.int64)
        np.maximum.at(longest, owners, sizes)
        if longest.max(initial=0) < least:
            raise UsageError(
                f"no item of {listed(list(self._names))} has a text of {least} words or more; expected benchmarks. Name the fields with their texts: --against-text question"
            )
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        table = NgramTable.of(np.concatenate(self._words), bounds, owners, groups, ngram=ngram, least=least)
        kinds = [np.ones(len(groups), np.bool_), (longest < ngram) & (longest >= least), longest < least]
        counts = [np.bincount(groups[kind], minlength=len(self._names)).tolist() for kind in kinds]
        return Benchmarks(
            tuple(self._names),
            table,
            groups.astype(np.uint32),
            np.array(self._rows, np.uint32),
            tuple(zip(*counts, strict=True)),
        )
