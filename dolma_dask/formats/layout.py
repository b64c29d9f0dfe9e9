"""Path algebra of both trees: which file belongs to which shard. Pure string work, no I/O.

``<dataset>/documents/<any folders>/<shard>`` holds documents, ``<dataset>/attributes/<name>/<same folders>/<shard>`` what was
derived from them. A dataset may itself lie at ``<root>/sources/<source>/<version>``. The path below ``documents/`` is kept always,
also for a single file in a single folder.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from dolma_dask.errors import UsageError

DOCUMENTS = "documents"
ATTRIBUTES = "attributes"
JOURNAL = "_journal"
QUARANTINE = "_quarantine"
WORK = "_work"
CLUSTERS = "clusters"

OF_RUNS = (f"{JOURNAL}/", f"{QUARANTINE}/", f"{WORK}/")
"""Folders of a root that tell of the runs that filled it."""

DOCUMENT_SUFFIXES = (".jsonl.gz", ".json.gz", ".jsonl.zst", ".json.zst", ".jsonl", ".parquet")
"""Suffixes of document files."""

FileFormat = Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"]
FORMATS: tuple[FileFormat, ...] = ("jsonl.gz", "jsonl.zst", "jsonl", "parquet")
"""Formats of documents and attributes that can be written."""

_NAME = re.compile(r"[^\W_][\w.-]*")
_PART = re.compile(r"-part-\d{5}(?=\.[a-z.]+$)")


def suffix_of(path: str) -> str | None:
    """Return the document suffix of `path`, or None if it is not a document file."""
    return next((suffix for suffix in DOCUMENT_SUFFIXES if path.endswith(suffix)), None)


def stem_of(path: str) -> str:
    """Return `path` without its document suffix."""
    return path.removesuffix(suffix_of(path) or "")


def format_of(path: str) -> FileFormat:
    """Return the format behind the suffix of a document or attribute file."""
    if path.endswith(".gz"):
        return "jsonl.gz"
    if path.endswith(".zst"):
        return "jsonl.zst"
    return "parquet" if path.endswith(".parquet") else "jsonl"


def clusters_path(name: str) -> str:
    """Return the table of the clusters of an attribute set of duplicates, relative to the dataset."""
    return f"{CLUSTERS}/{name}.parquet"


def with_format(path: str, file_format: FileFormat | None) -> str:
    """Return `path` with the suffix of `file_format`; unchanged if it has that format already or none is requested."""
    if file_format is None or format_of(path) == file_format:
        return path
    return f"{stem_of(path)}.{file_format}"


def part_path(path: str, index: int) -> str:
    """Return the name of part `index` of a unit that is written as several files."""
    return f"{stem_of(path)}-part-{index:05d}{suffix_of(path) or ''}"


def unit_of(path: str) -> str:
    """Return the unit that a file belongs to: itself, or what it is a part of (`part_path`)."""
    return _PART.sub("", path)


def document_path(shard: str) -> str:
    """Return the path of a shard relative to its dataset."""
    return f"{DOCUMENTS}/{shard}"


def attribute_path(name: str, shard: str, file_format: FileFormat | None = None) -> str:
    """Return where the attribute set `name` of a shard is written, relative to the dataset."""
    return f"{ATTRIBUTES}/{name}/{with_format(shard, file_format)}"


def attribute_candidates(shard: str) -> list[str]:
    """Return the paths below ``attributes/<name>/`` that may hold a shard's attributes, best first."""
    others = [with_format(shard, file_format) for file_format in FORMATS]
    return list(dict.fromkeys([shard, *others]))


def other_formats(paths: Iterable[str], taken: Iterable[str] = ()) -> frozenset[str]:
    """Return where the same files would lie in another format, without those that are `taken` by others."""
    own = frozenset(paths)
    return frozenset(stem_of(path) + suffix for path in own for suffix in DOCUMENT_SUFFIXES) - own - {*taken}


def version_roots(root: str, source: str, version: str) -> tuple[str, str]:
    """Return where a version of a source may lie below `root`: at ``sources/<source>/<version>``, or without ``sources``."""
    base = root.rstrip("/")
    return f"{base}/sources/{source}/{version}", f"{base}/{source}/{version}"


def dataset_root(url: str) -> str:
    """Return the dataset root for a URL that may point at its ``documents`` folder."""
    trimmed = url.rstrip("/")
    return trimmed.removesuffix(f"/{DOCUMENTS}") if trimmed.endswith(f"/{DOCUMENTS}") else trimmed


def check_name(name: str, what: str) -> str:
    """Return `name` if it can be one folder or file name; raise `UsageError` otherwise."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{what} {name!r} cannot be used as a folder name; expected letters, digits, '-', '_' or '.', with a letter or digit at "
            "its start. Choose another name."
        )
    return name


def check_no_collision(paths: Sequence[str]) -> None:
    """Raise `UsageError` if two shards would be written to one output path."""
    twice = sorted(path for path, count in Counter(paths).items() if count > 1)
    if twice:
        raise UsageError(
            f"{len(twice)} output paths would be written by more than one input, first {twice[0]!r}; expected names that differ "
            "before their suffix. Rename the inputs or choose the output format that keeps them apart."
        )
