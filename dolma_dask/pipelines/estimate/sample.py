"""A seeded sample of records of all entries, as files that the stages can run on.

Records are cut into runs of neighbours, and one of n runs is drawn, by seed: neighbours are alike, so that the sample deflates like the whole. Copies (`records`) belong to the run of the first of them, wherever they lie. So the sample has its share of bytes, of records and of duplicates all
at once: a pipeline keeps in it what it would keep of the whole, whatever its rules.
Neighbouring files are put together, so that a file of the sample is about as large as a real one and the cost per file stays in proportion.

Limits: what has not been read (`scan_bytes`) may hold copies that nobody has seen; similar texts that do not share their number are parted;
of a large file that is not read to its end, the beginning stands for the whole.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.decompress import compression_of
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.journal import Journal, Record
from dolma_dask.pipelines.estimate.entries import Entry
from dolma_dask.pipelines.estimate.records import Scanned, Sizes, TextKeys, kind_of, read_chosen, scan

PARTS = ("tiny", "many", "large")
"""Samples: some records for what a stage costs anyway, the same in many files, and all that was drawn."""

_BITS = {"tiny": 1, "many": 1, "large": 2}
"""Which records are in a sample: the bit of `Scan.parts`."""

_LEAST_READ = 32_000_000
"""Stored bytes of a large file that are read at least."""

_FILES_READ = 8
"""At least so many files share what may be read."""

_LEAST_FILES = {"tiny": 2, "many": 24, "large": 2}
"""Files of a sample at least, if there are as many: two, so that what several files need is in all."""

_RUN_BYTES = 16_000
"""Bytes of neighbours that are drawn together: half a window of gzip. Longer runs are too few where most documents are copies."""

_LEAST_RUNS = 16
"""Runs that a sample has at least: less of each where it is small."""

_DRAWS = 200
"""Samples that are drawn; the one that is most like the whole is taken."""

_TINY = 32
"""The beginning of each run that is in the tiny sample: one part in so many."""


@dataclass
class Scan:
    """What was read of an entry."""

    entry: Entry
    files: list[FileInfo] = field(default_factory=list)  # that were read, in the order of the listing
    found: list[Scanned] = field(default_factory=list)  # beside them
    parts: list[npt.NDArray[np.uint8]] = field(
        default_factory=list
    )  # for each file and record: bits of the samples that have it

    @property
    def stored(self) -> int:
        """Stored bytes that were read."""
        return sum(one.stored for one in self.found)

    @property
    def seen(self) -> int:
        """Bytes of the records that were read."""
        return int(sum(one.sizes.sum() for one in self.found))

    @property
    def growth(self) -> float:
        """All stored bytes over those that were read."""
        return self.entry.bytes / max(self.stored, 1)

    @property
    def bytes(self) -> float:
        """Bytes of all records."""
        return self.seen * self.growth

    @property
    def records(self) -> float:
        """Number of all records."""
        return sum(len(one.keys) for one in self.found) * self.growth

    @property
    def largest(self) -> float:
        """Bytes of the records of the largest file."""
        return max(info.bytes for info in self.entry.files) * self.seen / max(self.stored, 1)


@dataclass
class Sample:
    """One of the samples of an entry."""

    bytes: int = 0  # of its records
    files: int = 0


def scan_entries(
    entries: Sequence[Entry], keys: TextKeys, seed: int, scan_bytes: int, advance: Callable[[int], None]
) -> list[Scan]:
    """Read the records of entries, as far as `scan_bytes` allows: whole files in an order that the seed decides."""
    total = sum(entry.bytes for entry in entries)
    scans = []
    for entry in entries:
        left = max(int(scan_bytes * entry.bytes / total), 1)
        most = max(_LEAST_READ, left // _FILES_READ) if entry.bytes > left else entry.bytes
        found: dict[str, tuple[FileInfo, Scanned]] = {}
        for info in sorted(entry.files, key=lambda info: _rank(info.path, seed)):
            if left <= 0:
                break
            one = scan(files.join(entry.root, info.path), info.bytes, keys, min(most, left))
            found[info.path] = info, one
            left -= one.stored
            advance(one.stored)
        ordered = [found[info.path] for info in entry.files if info.path in found]
        scans.append(Scan(entry, [info for info, _ in ordered], [one for _, one in ordered]))
    return scans


def _rank(path: str, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(path.encode(), seed=seed)


def check_records(scans: Sequence[Scan]) -> None:
    """Refuse an entry without any record.

    Raises `UsageError`.
    """
    for each in scans:
        if not any(len(one.keys) for one in each.found):
            raise UsageError(
                f"{each.entry.url} holds no records in {counted(len(each.found), 'file')} that were read; expected documents to draw a sample from."
            )


def choose(scans: Sequence[Scan], sample_bytes: int, seed: int) -> None:
    """Draw the samples: sets `Scan.parts`.

    Raises `UsageError`: something can only be taken whole and is too large.
    """
    sizes = np.concatenate([one.sizes for each in scans for one in each.found])
    keys = np.concatenate([one.keys for each in scans for one in each.found])
    entry = np.repeat(np.arange(len(scans)), [sum(len(one.keys) for one in each.found) for each in scans])
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    share = min(1.0, sample_bytes / max(float(sizes.sum()), 1.0))
    edge = max(min(_RUN_BYTES, share * float(sizes[first].sum()) / _LEAST_RUNS), 1.0)
    order = np.argsort(first)
    begins = np.cumsum(sizes[first[order]]) - sizes[first[order]]
    runs = np.empty(len(first), np.int64)
    runs[order] = begins // edge
    is_drawn = _drawn(runs, [sizes[first], np.bincount(group), np.bincount(group, sizes)], share, seed)[runs]
    is_first = np.empty(len(first), bool)
    is_first[order] = begins % edge < edge / _TINY
    bits = (_BITS["large"] * is_drawn + _BITS["tiny"] * (is_drawn & is_first)).astype(np.uint8)
    of_records = bits[group]
    for at, each in enumerate(scans):
        mine = of_records[entry == at]
        _ensure(mine)
        each.parts = np.split(mine, np.cumsum([len(one.keys) for one in each.found])[:-1])
        _check_size(each, sample_bytes)


def _drawn(
    runs: npt.NDArray[np.int64], weights: Sequence[npt.NDArray[Any]], share: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Return which runs are drawn: one of each stretch of ``1 / share``, so that they have nearly this share of all weights."""
    count = int(runs.max(initial=-1)) + 1
    number = min(max(round(count * share), 1), count)
    sums = [np.bincount(runs, each, count) for each in weights]
    draw = np.random.default_rng(seed)
    best, least = np.zeros(count, bool), np.inf
    for _ in range(_DRAWS):
        at = ((np.arange(number) + draw.random(number)) * (count / max(number, 1))).astype(np.int64)
        off = max((abs(each[at].sum() / max(each.sum() * share, 1.0) - 1) for each in sums), default=0.0)
        if off < least:
            best, least = np.bincount(at, minlength=count) > 0, off
    return best


def _ensure(parts: npt.NDArray[np.uint8]) -> None:
    """Give every sample a record of an entry that has few."""
    for bit in sorted(set(_BITS.values())):
        if len(parts) and not (parts & bit).any():
            parts[len(parts) // 2] |= bit


def _check_size(each: Scan, sample_bytes: int) -> None:
    for info, one, parts in zip(each.files, each.found, each.parts, strict=True):
        if kind_of(info.path) == "whole" and parts.any() and one.sizes[0] > 4 * sample_bytes:
            raise UsageError(
                f"{files.join(each.entry.root, info.path)} can only be taken whole and holds {info.bytes / 1e6:,.0f} MB; expected at most four times "
                f"--sample-bytes {sample_bytes:,}. Give a larger number, or smaller files."
            )


# ------------------------------------------------------------------------------------------------------------ writing


def write_samples(each: Scan, folders: Sequence[str]) -> list[Sample]:
    """Write the samples of an entry, and the attributes of its documents beside them, to a folder each; return what is in them."""
    samples = []
    for name, folder in zip(PARTS, folders, strict=True):
        bit = _BITS[name]
        pairs = zip(each.found, each.parts, strict=True)
        size = sum(int(one.sizes[parts & bit > 0].sum()) for one, parts in pairs)
        groups = _groups(each, size, name)
        for tree in _trees(each, groups):
            _write_group(each, tree, bit, folder)
            _declare(each.entry, tree[0], folder)
        samples.append(Sample(size, len(groups)))
    return samples


def _declare(entry: Entry, path: str, folder: str) -> None:
    """Tell the keys of an attribute file as the journal of the dataset does: its rows may hold none, such as flags that are rare."""
    if not entry.is_dataset or path not in entry.made_by:
        return
    verb, record = entry.made_by[path]
    info: dict[str, Any] = {"unproved": True}
    info.update((name, record.info[name]) for name in ("kinds", "levels") if name in record.info)
    url = files.join(folder, path)
    data, there = files.read_bytes(url), files.stat(url)
    written = FileRecord(path, len(data), xxhash.xxh3_128_hexdigest(data), stamp=there.stamp if there else "")
    Journal(folder, verb).append(Record(path, record.shard, "sample", files=(written,), info=info))


def _groups(each: Scan, size: int, name: str) -> list[list[int]]:
    """Return numbers of neighbouring files that become one; as many as are in proportion, or `_LEAST_FILES`."""
    used = [at for at, parts in enumerate(each.parts) if (parts & _BITS[name]).any()]
    whole = [[at] for at in used if kind_of(each.files[at].path) == "whole"]
    used = [at for at in used if kind_of(each.files[at].path) != "whole"]
    wanted = len(each.entry.files) * size / max(each.bytes, 1.0)
    most = max(min(_LEAST_FILES[name], len(each.entry.files)), round(wanted))
    by_kind: defaultdict[str, list[int]] = defaultdict(list)
    for at in used:
        path = each.files[at].path
        by_kind[f"{kind_of(path)} {compression_of(path)}"].append(at)
    groups = []
    for numbers in by_kind.values():
        count = max(1, round(most * len(numbers) / max(len(used), 1)))
        edge = math.ceil(len(numbers) / count)
        groups += [numbers[at : at + edge] for at in range(0, len(numbers), edge)]
    return whole + groups


def _trees(each: Scan, groups: Sequence[Sequence[int]]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield the path of each file of a sample, with the files that its rows come from: of documents, then of their attributes."""
    for numbers in groups:
        paths = [each.files[at].path for at in numbers]
        yield paths[0], list(zip(paths, numbers, strict=True))
        if each.entry.is_dataset:
            yield from _attributes(each.entry, paths, numbers)


def _attributes(
    entry: Entry, paths: Sequence[str], numbers: Sequence[int]
) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    stems = [layout.stem_of(path.removeprefix(f"{layout.DOCUMENTS}/")) for path in paths]
    for known in entry.attribute_files.values():
        there = [(known[stem], at) for stem, at in zip(stems, numbers, strict=True) if stem in known]
        if len(there) == len(paths):
            yield there[0][0], there


def _write_group(each: Scan, group: tuple[str, list[tuple[str, int]]], bit: int, folder: str) -> None:
    path, sources = group
    pieces: list[Any] = []
    for source, at in sources:
        rows: Sizes = np.flatnonzero(each.parts[at] & bit)
        pieces += read_chosen(files.join(each.entry.root, source), rows)
    with publish(files.join(folder, path), synced=False) as out:
        if pieces and isinstance(pieces[0], pa.Table):
            buffer = pa.BufferOutputStream()
            pq.write_table(pa.concat_tables(pieces), buffer, compression="zstd")
            out.write(buffer.getvalue())
        else:
            out.write(_packed(b"".join(pieces), path))


def _packed(data: bytes, path: str) -> bytes:
    """Compress lines as their suffix says; whole files are compressed already."""
    if kind_of(path) == "whole":
        return data
    compression = compression_of(path.lower())
    if compression == "gzip":
        import gzip

        return gzip.compress(data, 6, mtime=0)
    return pa.compress(data, codec="zstd", asbytes=True) if compression == "zstd" else data
