"""Path algebra of both trees: which file belongs to which shard. Pure string work, no I/O.

``<dataset>/documents/<any folders>/<shard>`` holds documents, ``<dataset>/attributes/<name>/<same folders>/<shard>`` what was
derived from them. A dataset may itself lie at ``<root>/sources/<source>/<version>``. The path below ``documents/`` is kept always,
also for a single file in a single folder.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from dolma_dask.errors import UsageError

DOCUMENTS = "documents"
ATTRIBUTES = "attributes"
JOURNAL = "_journal"
QUARANTINE = "_quarantine"
_ASIDE = f"{QUARANTINE}/"
WORK = "_work"
CLUSTERS = "clusters"
SEGMENTS = "segments"
TOMBSTONES = "_tombstones"

_SEGMENT = re.compile(r"\d{6}-[0-9a-f]{16}")

OF_RUNS = (f"{JOURNAL}/", f"{QUARANTINE}/", f"{WORK}/")
"""Folders of a root that tell of the runs that filled it."""

_COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".gzip", ".zstd")
_LINES = (".jsonl", ".json", ".ndjson")

DOCUMENT_SUFFIXES = (
    *(lines + packed for packed in (*_COMPRESSED, "") for lines in _LINES),
    ".parquet",
    *_COMPRESSED,
)
"""Suffixes of document files, the longer ones first: JSON lines in any compression that is read, and tables. Of a name that ends with a compression
alone, such as ``part.gz``, the reader finds out whether lines are in it."""

_SUFFIX = re.compile(rf"({'|'.join(map(re.escape, DOCUMENT_SUFFIXES))})\Z")
_LONGEST = max(map(len, DOCUMENT_SUFFIXES))

SUFFIXES_SHOWN = (
    "JSON lines (.jsonl, .json or .ndjson, also with .gz, .zst, .bz2 or .xz behind it) or .parquet"
)
"""The same, for people."""

_OTHERS = re.compile(
    r"\.(tar|txt|text|md|csv|tsv|xml|html|warc|wet|wat|parquet|arrow|npy|h5|pdf|tok)\.[a-z0-9]+$"
)
"""Names that end with a compression, and say that something else is in it."""

_WRITTEN_BESIDE = (
    *("_SUCCESS", "_metadata", "_common_metadata", "_committed_*", "_started_*"),
    *("Thumbs.db", "desktop.ini", "MD5SUMS", "SHA1SUMS", "SHA256SUMS", "SHA512SUMS"),
    *("*.crc", "*.md5", "*.sha1", "*.sha256", "*.sha512"),
)
"""Names of files that writers and systems leave beside others, and that hold no records. Hidden files are not listed at all."""

_BESIDE_DOCUMENTS = ("_*", "README*", "LICENSE*", *_WRITTEN_BESIDE)
"""The same below ``documents/``, where what people write is no document either; among raw files it may be one."""

FileFormat = Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"]
FORMATS: tuple[FileFormat, ...] = ("jsonl.gz", "jsonl.zst", "jsonl", "parquet")
"""Formats of documents and attributes that can be written."""

_ONLY_READ = (".bz2", ".xz")
"""Compressions that are never written: they cost ten times as much as gzip."""

_AS_GZIP = (".gz", ".gzip", *_ONLY_READ)

_NAME = re.compile(r"[^\W_][\w.-]*")
_PART = re.compile(r"-part-\d{5}(?=\.[a-z.]+$)")


def is_segment(name: str) -> bool:
    """Tell whether a folder below ``segments/`` is one that `dedupe` wrote into an index: nothing else is read there, or removed."""
    return _SEGMENT.fullmatch(name) is not None


def suffix_of(path: str) -> str | None:
    """Return the document suffix of `path`, or None if it is not a document file."""
    found = _SUFFIX.search(path, max(len(path) - _LONGEST, 0))
    if found is None:
        return None
    suffix = found[0]
    return None if suffix in _COMPRESSED and _OTHERS.search(path) else suffix


def is_marker(path: str, *, is_raw: bool = False) -> bool:
    """Tell whether a file is known to hold no documents, or among raw files no records."""
    name = path.rpartition("/")[2]
    patterns = _WRITTEN_BESIDE if is_raw else _BESIDE_DOCUMENTS
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_named(path: str, patterns: Sequence[str]) -> bool:
    """Tell whether a path, its last part or a folder in it is, or matches as a shell pattern, one of `patterns`."""
    if not patterns:
        return False
    parts = path.split("/")
    names = {*parts, *("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))}
    return any(fnmatchcase(name, pattern.rstrip("/")) for pattern in patterns for name in names)


def stem_of(path: str) -> str:
    """Return `path` without its document suffix."""
    return path[: len(path) - len(suffix_of(path) or "")]


def format_of(path: str) -> FileFormat:
    """Return the format behind the suffix of a document or attribute file, or that of files made of it, where its own is only read."""
    if path.endswith(_AS_GZIP):
        return "jsonl.gz"
    if path.endswith((".zst", ".zstd")):
        return "jsonl.zst"
    return "parquet" if path.endswith(".parquet") else "jsonl"


def is_set_aside(path: str) -> bool:
    """Tell whether a file of a root holds bad records, which may be cleared away."""
    return path.startswith(_ASIDE)


def clusters_path(name: str) -> str:
    """Return the table of the clusters of an attribute set of duplicates, relative to the dataset."""
    return f"{CLUSTERS}/{name}.parquet"


def with_format(path: str, file_format: FileFormat | None) -> str:
    """Return `path` with the suffix of `file_format`; unchanged if it has that format already, or none is requested and its own can be written."""
    own = format_of(path)
    wanted = file_format or own
    if own == wanted and not path.endswith(_ONLY_READ):
        return path
    return f"{stem_of(path)}.{wanted}"


def part_path(path: str, index: int) -> str:
    """Return the name of part `index` of a unit that is written as several files."""
    return f"{stem_of(path)}-part-{index:05d}{suffix_of(path) or ''}"


def unit_of(path: str) -> str:
    """Return the unit that a file belongs to: itself, or what it is a part of (`part_path`)."""
    return _PART.sub("", path) if "-part-" in path else path


def document_path(shard: str, folder: str = DOCUMENTS) -> str:
    """Return the path of a shard relative to its dataset."""
    return f"{folder}/{shard}" if folder else shard


def attribute_path(name: str, shard: str, file_format: FileFormat | None = None) -> str:
    """Return where the attribute set `name` of a shard is written, relative to the dataset."""
    return f"{ATTRIBUTES}/{name}/{with_format(shard, file_format)}"


def attribute_candidates(shard: str) -> list[str]:
    """Return the paths below ``attributes/<name>/`` that may hold a shard's attributes, best first."""
    stem, own = stem_of(shard), None if shard.endswith(_ONLY_READ) else format_of(shard)
    others = [f"{stem}.{file_format}" for file_format in FORMATS if file_format != own]
    return [shard, *(path for path in others if path != shard)]


class OtherFormats(Struct, frozen=True):
    """Paths at which some files would lie in another format."""

    own: frozenset[str] = frozenset()  # the files themselves
    taken: frozenset[str] = frozenset()  # these, and those of others

    def __contains__(self, path: str) -> bool:
        return path not in self.taken and suffix_of(path) is not None and has_stem_of(path, self.own)


def has_stem_of(path: str, paths: Set[str]) -> bool:
    """Tell whether a path, or what differs from it in its suffix alone, is among some paths."""
    if path in paths:
        return True
    stem = stem_of(path)
    others = (stem + suffix for suffix in ("", *DOCUMENT_SUFFIXES))
    return any(other in paths and stem_of(other) == stem for other in others)


def other_formats(paths: Iterable[str], taken: Iterable[str] = ()) -> OtherFormats:
    """Return where the same files would lie in another format, without those that are `taken` by others."""
    own = frozenset(paths)
    every = frozenset(taken)
    return OtherFormats(own, own if every <= own else own | every)


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
