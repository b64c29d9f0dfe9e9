"""Raw files grouped into document shards: a pure function of the listing.

A file of records makes one shard at the same path, so that a document can be traced back by its name alone. Text files hold one
document each; they are put together in the order of the listing, up to a size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dolma_dask.errors import UsageError
from dolma_dask.io.files import FileInfo, join
from dolma_dask.io.stream import BLOCK_BYTES, MAX_RECORD_BYTES
from dolma_dask.sources.base import Source
from dolma_dask.sources.jsonl import JsonLines
from dolma_dask.sources.mapping import FieldMapping
from dolma_dask.sources.naming import document_path, split_suffix
from dolma_dask.sources.parquet import ParquetTable
from dolma_dask.sources.tar import TarArchive
from dolma_dask.sources.text import TextFiles

TEXT_SHARD_BYTES = 64 << 20
"""Stored bytes of text files per shard, about: half a task's worth of work."""

TEXT_SHARD_FILES = 20_000
"""Text files per shard at most: each costs an open."""


@dataclass(frozen=True)
class RawShard:
    """Raw files that become one document shard."""

    path: str  # where the documents go, relative to ``documents/``
    # the raw files in row order, with paths relative to the raw folder; more than one only for text files
    files: tuple[FileInfo, ...]

    @property
    def bytes(self) -> int:
        """Stored bytes of all files."""
        return sum(file.bytes for file in self.files)


def plan_shards(
    files: Sequence[FileInfo],
    *,
    text_shard_bytes: int = TEXT_SHARD_BYTES,
    text_shard_files: int = TEXT_SHARD_FILES,
) -> list[RawShard]:
    """Group the listed files of a raw folder into shards, sorted by the UTF-8 bytes of their paths.

    Raises `UsageError`: a file has an unknown suffix, or two files would become the same shard.
    """
    texts = [file for file in files if split_suffix(file.path).kind == "text"]
    shards = [
        RawShard(document_path(file.path), (file,))
        for file in files
        if split_suffix(file.path).kind != "text"
    ]
    for number, group in enumerate(_groups(texts, text_shard_bytes, text_shard_files)):
        shards.append(RawShard(f"text-{number:05d}.jsonl.gz", tuple(group)))
    shards.sort(key=lambda shard: shard.path.encode())
    _check_distinct(shards)
    return shards


def _groups(files: Sequence[FileInfo], max_bytes: int, max_files: int) -> Iterator[list[FileInfo]]:
    group: list[FileInfo] = []
    size = 0
    for file in files:
        if group and (size + file.bytes > max_bytes or len(group) == max_files):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.bytes
    if group:
        yield group


def _check_distinct(shards: Sequence[RawShard]) -> None:
    for before, after in pairwise(shards):
        if before.path == after.path:
            raise UsageError(
                f"{before.files[0].path} and {after.files[0].path} would both become documents/{after.path}; expected names that "
                "differ in more than the suffix. Rename one, or convert them into two datasets.",
                path=after.path,
            )


def open_source(
    url: str,
    path: str,
    mapping: FieldMapping | None = None,
    *,
    block_bytes: int = BLOCK_BYTES,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Source:
    """Return the source for one raw file by its name; nothing is read yet. Ids are made from `path`, relative to the raw folder.

    Raises `UsageError`: the suffix is not known, or a text file has no `source_name`.
    """
    mapping = mapping or FieldMapping()
    kind = split_suffix(url).kind
    if kind == "text":
        return TextFiles((url,), (path,), mapping, block_bytes, max_record_bytes)
    kinds: dict[str, Callable[..., Source]] = {"parquet": ParquetTable, "tar": TarArchive, "jsonl": JsonLines}
    return kinds[kind](url, path, mapping, block_bytes, max_record_bytes)


def open_shard(
    root: str,
    shard: RawShard,
    mapping: FieldMapping | None = None,
    *,
    block_bytes: int = BLOCK_BYTES,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> Source:
    """Return the source of a planned shard below the raw folder `root`; see `open_source`."""
    paths = tuple(file.path for file in shard.files)
    urls = tuple(join(root, path) for path in paths)
    if len(urls) > 1:
        return TextFiles(urls, paths, mapping or FieldMapping(), block_bytes, max_record_bytes)
    return open_source(urls[0], paths[0], mapping, block_bytes=block_bytes, max_record_bytes=max_record_bytes)
