"""Benchmarks of the user's, whose items documents are compared with: JSON lines, Parquet, or text with an item in each line.

The n-grams of all items are one file in the user's cache folder, named by a digest of what they were made of: made once on a machine, atomically, and mapped by all of its processes, which share the memory. Where
nothing can be written each process makes its own. A file that nobody has opened for `KEPT_DAYS` is removed when another one is made.
"""

import json
import mmap
import os
import posixpath
import time
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash
from msgspec import Struct

from dolma_dask.display import counted, listed
from dolma_dask.errors import DataError, SourceChangedError, StoreError, UsageError
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet, read_batches
from dolma_dask.io.publish import publish
from dolma_dask.io.stream import BLOCK_BYTES, StoredFile, compression_of, no_lines, read_lines
from dolma_dask.minhash.ngrams import hash_tokens
from dolma_dask.sources.naming import list_raw
from dolma_dask.taggers.contamination import Benchmarks
from dolma_dask.taggers.labels import check_names
from dolma_dask.text.kernels import Counts, Words
from dolma_dask.text.ngram_table import NgramTable
from dolma_dask.text.tables import table_versions

VERSION = 1
"""Raised whenever the same benchmarks give another table."""

FEWEST_WORDS = 8
"""Words of the shortest text that is compared, whole if it is shorter than an n-gram: what GPT-3 took at least."""

KEPT_DAYS = 30

_MAGIC = b"dolma_dask ngrams\n"
_ALIGNED = 64
_opened: dict["Comparison", Benchmarks] = {}
_opening = RLock()


class BenchmarkFile(Struct, frozen=True):
    """A file of items."""

    url: str
    name: str  # of the benchmark, unless a field tells it
    checksum: str


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
            if not _kind(info.path):
                raise UsageError(
                    f"{files.join(base, info.path)} is of no kind that is read as a benchmark; expected {', '.join(_KINDS)}, also in gzip or zstd. Rename it, or leave it out."
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
        read = [[file.name, _kind(file.url), file.checksum] for file in self.files]
        return {"against": read, "fields": list(self.fields), "ngram": self.ngram, "version": VERSION, **by}

    def opened(self) -> Benchmarks:
        """Return the items and their n-grams.

        Raises `DataError`: a file cannot be read; `UsageError`: one has no such fields, or nothing in it can be compared; `SourceChangedError`: one is not as it was when the command began.
        """
        with _opening:
            if self not in _opened:
                given = json.dumps([self.params, *table_versions()], sort_keys=True)
                _opened[self] = _from_cache(xxhash.xxh3_128_hexdigest(given.encode()), self._read)
            return _opened[self]

    def notes(self) -> Iterator[str]:
        """Yield what people should know of items that are short."""
        known = self.opened()
        for name, (items, whole, left_out) in zip(known.names, known.totals, strict=True):
            parts = [
                f"{whole:,} have fewer than {self.ngram} words and are compared whole" if whole else "",
                f"{left_out:,} fewer than {self._least} and are not compared" if left_out else "",
            ]
            if any(parts):
                yield f"{name}: of {counted(items, 'item')} {', '.join(filter(None, parts))}"

    @property
    def _least(self) -> int:
        return min(FEWEST_WORDS, self.ngram)

    def _read(self) -> Benchmarks:
        collected = _Items(self)
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


_KINDS = {".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet", ".txt": "text"}
"""Kinds of files by their suffixes."""


def _kind(url: str) -> str:
    """Return the kind of a file; nothing if it is no known one."""
    name = url[: url.rfind(".")] if compression_of(url) else url
    return _KINDS.get(name[name.rfind(".") :], "")


class _Items:
    """Items of files, one after the other, as hashes of words."""

    def __init__(self, given: Comparison) -> None:
        self._given = given
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
        for row, item in _rows(file.url):
            first = first or item
            for field in self._given.fields:
                for text in [item] if isinstance(item, str) else _texts_at(item, field.split(".")):
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
                f"{file.url} has no text in {listed(self._given.fields)}; its first item has {listed(_fields_of(first))}. Name the fields that are compared: "
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
        if self._given.by:
            value = item.get(self._given.by) if isinstance(item, dict) else None
            if value is None or isinstance(value, dict | list):
                raise UsageError(
                    f"{file.url}, row {row}, has no name in the field {self._given.by!r}; expected that of its benchmark (--against-by).",
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


def _fields_of(item: Any) -> list[str]:
    return [f"{name!r}" for name in item] if isinstance(item, dict) and item else ["no fields"]


def _texts_at(value: Any, path: Sequence[str]) -> Iterator[str]:
    """Yield the texts at a path; of a list those of all members."""
    if isinstance(value, list):
        for member in value:
            yield from _texts_at(member, path)
    elif path and isinstance(value, dict):
        yield from _texts_at(value.get(path[0]), path[1:])
    elif not path and isinstance(value, str):
        yield value


def _rows(url: str) -> Iterator[tuple[int, Any]]:
    """Yield the items of a file by row, from 1: objects, or texts; lines without anything are none."""
    if _kind(url) == "parquet":
        with open_parquet(url) as file:
            batches = read_batches(url, file, None, BLOCK_BYTES)
            yield from enumerate((item for batch in batches for item in batch.to_pylist()), 1)
        return
    stored = StoredFile(url)
    try:
        is_json = _kind(url) == "json"
        for block in read_lines(stored, compression_of(url)):
            for row, line in enumerate(block, block.first_row + 1):
                if block.oversize_bytes:
                    raise _bad(
                        url, row, f"{counted(block.oversize_bytes, 'byte')}, too long for an item", line
                    )
                if row == 1:
                    line = line.removeprefix(BOM_UTF8)
                if line.strip():
                    yield row, _object(url, row, line) if is_json else _line(url, row, line)
    finally:
        stored.close()


def _object(url: str, row: int, line: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise _bad(url, row, f"no JSON object ({error})", line) from None


def _line(url: str, row: int, line: bytes) -> str:
    try:
        return line.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _bad(url, row, f"no UTF-8 ({error.reason})", line) from None


def _bad(url: str, row: int, found: str, line: bytes) -> DataError:
    return DataError(
        f"{url}, line {row}: {found}; expected an item of a benchmark in each line: an object in a file of JSON lines, else a text{no_lines(line)}. Mend the file, or leave it out.",
        url=url,
    )


# ------------------------------------------------------------------------------------------------ the file in the cache


def _from_cache(digest: str, make: Callable[[], Benchmarks]) -> Benchmarks:
    """Return the benchmarks of this digest from the cache, where they are put if they are not there."""
    made: Benchmarks | None = None
    with suppress(
        OSError, RuntimeError, StoreError
    ):  # nobody's home, or one that is full or cannot be written
        base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
        path = Path(base) / "dolma_dask" / "benchmarks" / f"{digest}.ngrams"
        if known := _mapped(path):
            return known
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            if known := _mapped(path):  # another process has made it meanwhile
                return known
            made = make()
            _remove_old(path.parent)
            _write(path, made)
            return _mapped(path) or made
    return made or make()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes of this machine from making the same file; where locks do not work each makes it."""
    with path.with_suffix(".lock").open("a") as lock:
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_old(folder: Path) -> None:
    for path in folder.iterdir():
        with suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_DAYS * 86_400:
                path.unlink()


def _write(path: Path, made: Benchmarks) -> None:
    """Write magic and length of the head; the head, in JSON, with type and length of each array and a checksum of what follows; the arrays."""
    arrays = {**made.table.arrays(), "benchmark_of": made.benchmark_of, "rows": made.rows}
    body = b"".join(_padded(np.ascontiguousarray(array).tobytes()) for array in arrays.values())
    head = {
        "names": made.names,
        "totals": made.totals,
        "arrays": [(name, array.dtype.str, len(array)) for name, array in arrays.items()],
        "checksum": xxhash.xxh3_128_hexdigest(body),
    }
    encoded = msgspec.json.encode(head)
    with publish(str(path), synced=False) as file:
        file.write(_padded(_MAGIC + len(encoded).to_bytes(8, "little") + encoded))
        file.write(body)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNED)


class _Head(Struct, frozen=True):
    names: tuple[str, ...]
    totals: tuple[tuple[int, int, int], ...]
    arrays: tuple[tuple[str, str, int], ...]
    checksum: str


def _mapped(path: Path) -> Benchmarks | None:
    """Return what a file holds, mapped; None if there is none, or a damaged one."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    first = len(_MAGIC) + 8
    size = int.from_bytes(data[first - 8 : first], "little")
    try:
        head = msgspec.json.decode(data[first : first + size], type=_Head)
    except msgspec.DecodeError:
        return None
    at = first + size + -(first + size) % _ALIGNED
    if data[: len(_MAGIC)] != _MAGIC or xxhash.xxh3_128_hexdigest(memoryview(data)[at:]) != head.checksum:
        return None
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, kind, length in head.arrays:
        arrays[name] = np.frombuffer(data, np.dtype(kind), length, at)
        at += arrays[name].nbytes + -arrays[name].nbytes % _ALIGNED
    with suppress(OSError):
        os.utime(path)  # used today
    return Benchmarks(
        head.names, NgramTable.mapped(arrays), arrays["benchmark_of"], arrays["rows"], head.totals
    )
