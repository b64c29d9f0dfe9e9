"""Raw files grouped into document shards: a pure function of the listing.

A file of records makes one shard at the same path, so that a document can be traced back by its name alone. Text files hold one
document each; they are put together in the order of the listing, up to a size.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.functions.calls import UserFunction
from dolma_dask.io.files import FileInfo, grouped, join
from dolma_dask.io.stream import BLOCK_BYTES, MAX_RECORD_BYTES
from dolma_dask.sources.base import Cut, LineConverter, Source
from dolma_dask.sources.csv import CsvFile
from dolma_dask.sources.jsonl import JsonLines
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.mbox import Mailbox
from dolma_dask.sources.naming import SINGLE, Kind, document_path, split_suffix
from dolma_dask.sources.pages import Pages
from dolma_dask.sources.parquet import ParquetTable
from dolma_dask.sources.tar import TarArchive
from dolma_dask.sources.text import TextFiles
from dolma_dask.sources.warc import WarcArchive

TEXT_SHARD_BYTES = 64 << 20
"""Stored bytes of text files per shard, about: half a task's worth of work."""

TEXT_SHARD_FILES = 20_000
"""Text files per shard at most: each costs an open."""

WARC_PART_BYTES = 256 << 20
"""Stored bytes of an archive of the web that make a shard: some minutes of work. Crawlers write a gzip member for each record, at which a file can be cut."""

_SOURCES: dict[Kind, Callable[..., Source]] = {
    "csv": CsvFile,
    "jsonl": JsonLines,
    "mbox": Mailbox,
    "parquet": ParquetTable,
    "tar": TarArchive,
    "tsv": CsvFile,
    "warc": WarcArchive,
}


class RawShard(Struct, frozen=True):
    """Raw files that become one document shard, or one that is cut into parts."""

    path: str  # where the documents go, relative to ``documents/``
    files: tuple[FileInfo, ...]  # in row order, with paths relative to the raw folder
    cut: Cut | None = None  # the part of its only file; None: all of them

    @property
    def bytes(self) -> int:
        """Stored bytes that it is made of."""
        if self.cut is not None:
            return self.cut.stop - self.cut.start
        return sum(file.bytes for file in self.files)


def plan_shards(files: Sequence[FileInfo]) -> list[RawShard]:
    """Group the listed files of a raw folder into shards, sorted by the UTF-8 bytes of their paths.

    Raises `UsageError`: a file has an unknown suffix, or two files would become the same shard.
    """
    texts = [file for file in files if is_single(file.path)]
    shards = [RawShard(document_path(file.path), (file,)) for file in files if not is_single(file.path)]
    for number, group in enumerate(read_together(texts)):
        shards.append(RawShard(f"text-{number:05d}.jsonl.gz", tuple(group)))
    return _sorted(shards)


def with_parts(shards: Sequence[RawShard]) -> list[RawShard]:
    """Return shards of which those of large archives of the web are cut into ``<path>-<part>-of-<parts>``, so that several workers read one.

    Raises `UsageError`: another file would become the shard of a part.
    """
    return _sorted(part for shard in shards for part in _parts(shard))


def _parts(shard: RawShard) -> list[RawShard]:
    (first, *_), stem = shard.files, layout.stem_of(shard.path)
    count = -(-first.bytes // WARC_PART_BYTES)
    name = split_suffix(first.path)
    if count < 2 or (name.kind, name.compression) != ("warc", "gzip"):
        return [shard]
    ends = [*range(0, first.bytes, WARC_PART_BYTES), first.bytes]
    return [
        replace(shard, path=f"{stem}-{part:05d}-of-{count:05d}.jsonl.gz", cut=Cut(start, stop))
        for part, (start, stop) in enumerate(pairwise(ends))
    ]


def combined(shards: Sequence[RawShard], group_of: Callable[[str], str], most_bytes: int) -> list[RawShard]:
    """Put neighbouring raw files of one group together, up to so many stored bytes: shards ``<group>/00000.jsonl.gz`` and so on, each a run of whole files.

    Files that are added behind the others change the last shard of their group alone.
    """
    groups: dict[str, list[RawShard]] = {}
    for shard in shards:
        groups.setdefault(group_of(shard.files[0].path), []).append(shard)
    return [
        RawShard(f"{name}/{number:05d}.jsonl.gz", tuple(file for one in run for file in one.files))
        for name, members in sorted(groups.items())
        for number, run in enumerate(grouped(members, lambda shard: shard.bytes, most_bytes))
    ]


def is_single(path: str) -> bool:
    """Tell whether a raw file is one document, and shares a shard with others."""
    return split_suffix(path).kind in SINGLE


def read_together(files: Sequence[FileInfo]) -> Iterator[list[FileInfo]]:
    """Yield files that are one source: neighbouring texts, up to a size; a file of records by itself."""
    for are_texts, group in groupby(files, lambda file: is_single(file.path)):
        most = TEXT_SHARD_FILES if are_texts else 1
        yield from grouped(group, lambda file: file.bytes, TEXT_SHARD_BYTES, most)


def _sorted(given: Iterable[RawShard]) -> list[RawShard]:
    """Sort shards by the UTF-8 bytes of their paths, no two of which are the same."""
    shards = sorted(given, key=lambda shard: shard.path.encode())
    for before, after in pairwise(shards):
        if before.path == after.path:
            raise UsageError(
                f"{before.files[0].path} and {after.files[0].path} would both become documents/{after.path}; expected names that "
                "differ in more than the suffix. Rename one, leave it out (--skip), or convert them into two datasets.",
                path=after.path,
            )
    return shards


def open_sources(
    root: str,
    files: Sequence[FileInfo],
    mapping: FieldMapping,
    *,
    max_record_bytes: int = MAX_RECORD_BYTES,
    lines: LineConverter | None = None,
    function: UserFunction | None = None,
    encoding: str | None = None,
    skip: tuple[str, ...] = (),
    pages: Pages = Pages(),  # noqa: B008 - it cannot change
    cut: Cut | None = None,
) -> Iterator[Source]:
    """Yield the sources of files below the raw folder `root`, in their order; nothing is read yet. Ids are made from the files' paths.

    `lines` makes other rows than documents of JSON lines; with a `function` each row holds all documents of a record (`dolma_dask.sources.functions`);
    `cut` is the part of the only file that is read.
    Raises `UsageError`: a suffix is not known.
    """
    for group in read_together(files):
        paths = tuple(file.path for file in group)
        urls = tuple(join(root, path) for path in paths)
        kind = split_suffix(paths[0]).kind
        if kind in SINGLE:
            yield TextFiles(urls, paths, mapping, BLOCK_BYTES, max_record_bytes, function, encoding, pages)
        else:
            more = (lines, function, encoding, skip, pages, cut)
            yield _SOURCES[kind](urls[0], paths[0], mapping, BLOCK_BYTES, max_record_bytes, *more)
