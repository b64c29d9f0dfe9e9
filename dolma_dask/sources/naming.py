"""Raw files: which there are, what their names say, and what their documents are called.

Files, folders and globs, local or remote, become one listing with paths relative to one folder. Only names are looked at, never the content: the
plan of a conversion is a pure function of the listing.
"""

import posixpath
import re
import shlex
from collections.abc import Sequence
from itertools import takewhile
from typing import Literal, NamedTuple

from msgspec import Struct

from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.stream import Compression, compression_of


def list_raw(inputs: Sequence[str]) -> tuple[str, list[FileInfo]]:
    """List files, folders and globs (``*``, ``?``, ``**``): the folder that holds them all, and the files relative to it, sorted.

    Raises `UsageError`: there is nothing for one of `inputs`.
    """
    listed = {info.path: info for item in inputs for info in _list_one(files.normalize(item))}
    bases = [_fixed_part(files.normalize(item)) for item in inputs]
    base = bases[0] if len(set(bases)) == 1 else _common_folder(bases)
    relative = [
        FileInfo(path[len(base) :].lstrip("/"), info.bytes, info.stamp) for path, info in listed.items()
    ]
    return base, sorted(relative, key=lambda info: info.path.encode())


def _common_folder(folders: Sequence[str]) -> str:
    split = [folder.split("/") for folder in folders]
    alike = takewhile(lambda parts: len(set(parts)) == 1, zip(*split, strict=False))
    common = "/".join(parts[0] for parts in alike)
    if common.endswith(":/"):
        raise UsageError(
            f"the inputs {folders[0]} and {folders[-1]} lie in different stores; convert them one by one."
        )
    return common


def _is_pattern(url: str) -> bool:
    """Tell a glob from a path; a local name that exists is a path, whatever is in it."""
    return bool(set("*?") & set(url)) and not (files.is_local(url) and files.local_path(url).exists())


def _is_folder(url: str) -> bool:
    return files.local_path(url).is_dir() if files.is_local(url) else files.stat(url) is None


def _fixed_part(url: str) -> str:
    """Return the folder to which the paths of an input are relative."""
    if _is_pattern(url):
        return "/".join(takewhile(lambda part: not set("*?") & set(part), url.split("/")))
    return url if _is_folder(url) else posixpath.dirname(url)


def _list_one(url: str) -> list[FileInfo]:
    """List one input with absolute paths."""
    if not _is_pattern(url) and not _is_folder(url):
        info = files.stat(url)
        if info is not None and files.is_local(url) and not files.local_path(url).is_file():
            raise UsageError(
                f"{url}: a pipe, socket or device; expected a file or folder. Write its content to a file first."
            )
        listed = [] if info is None else [FileInfo(url, info.bytes, info.stamp)]
    else:
        base = _fixed_part(url)
        below = (
            FileInfo(files.join(base, info.path), info.bytes, info.stamp) for info in files.list_files(base)
        )
        listed = [info for info in below if base == url or _glob_matches(info.path, url)]
        own = tuple(files.join(base, folder) for folder in layout.OF_RUNS)
        listed = [info for info in listed if not info.path.startswith(own)]  # raw files of `download`
    if not listed:
        raise UsageError(
            f"{url}: no files found; expected a file, a folder with files, or a glob such as 'raw/**/*.jsonl.gz'."
        )
    return listed


def _glob_matches(path: str, pattern: str) -> bool:
    translated = (
        re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
    )
    return re.fullmatch(translated.replace(r"\?", "[^/]"), path) is not None


Kind = Literal["jsonl", "parquet", "csv", "tsv", "text", "html", "mail", "mbox", "tar", "warc"]

SINGLE: tuple[Kind, ...] = ("text", "html", "mail")
"""Kinds of files that are one document each."""

OF_KNOWN_FIELDS: tuple[Kind, ...] = (*SINGLE, "mbox", "warc")
"""Kinds of files whose fields are the same always."""

_NAMED = 8
"""Files of no known kind that an error names."""

_COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz", ".gzip")
_KINDS: dict[str, Kind] = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".rst": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".eml": "mail",
    ".mbox": "mbox",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".tar": "tar",
    ".warc": "warc",
    ".wet": "warc",
}
_MAILDIR = re.compile(r"(?:.*/)?(?:(?:cur|new)/[0-9]+\.[^/]+|[0-9]+\.[^/]+:2,[A-Za-z]*)")
"""Messages of a maildir have names without a suffix; those that were seen have flags."""

_CONTAINERS = ("parquet", "tar")  # compressed inside; `.jsonl.zst.tar` is a tar of .jsonl.zst


class RawName(Struct, frozen=True):
    """A file name in parts."""

    stem: str  # the path without what its suffix says about format and compression
    kind: Kind  # how its records are stored
    compression: Compression | None  # how the file as a whole is compressed


def split_suffix(path: str) -> RawName:
    """Read kind and compression off a file name, in upper or lower case; raises `UsageError` for an unknown suffix."""
    lower = path.lower()
    packed = next((suffix for suffix in _COMPRESSED if lower.endswith(suffix)), "")
    bare = path[: len(path) - len(packed)]
    for suffix, kind in _KINDS.items():
        if bare.lower().endswith(suffix) and not (packed and kind in _CONTAINERS):
            return RawName(_stem(bare[: -len(suffix)], kind), kind, compression_of(lower))
    if _MAILDIR.fullmatch(path):
        return RawName(path, "mail", None)
    if packed and layout.suffix_of(lower) == packed:  # as documents may be called
        return RawName(bare, "jsonl", compression_of(lower))
    raise UsageError(
        f"{path}: unknown suffix; expected one of {' '.join(_KINDS)}, all but .parquet and .tar also with {' or '.join(_COMPRESSED)} behind it. "
        "Leave the file out by its name (convert: --skip NAME), or rename it to what it is; a table in another format becomes Parquet first.",
        path=path,
    )


class Listing(NamedTuple):
    """Raw files by what their names say."""

    known: list[FileInfo]  # that hold records
    markers: list[FileInfo]  # that are known to hold none
    odd: list[FileInfo]  # that nobody knows


def sorted_out(infos: Sequence[FileInfo], skip: Sequence[str]) -> Listing:
    """Sort out files by their names; those whose path, name or folder matches one of `skip` are in none of the lists."""
    listing = Listing([], [], [])
    for info in infos:
        if layout.is_named(info.path, skip):
            continue
        if layout.is_marker(info.path, is_raw=True):
            listing.markers.append(info)
        else:
            (listing.known if is_known(info.path) else listing.odd).append(info)
    return listing


def is_known(path: str) -> bool:
    """Tell whether the name of a file says what is in it."""
    try:
        split_suffix(path)
    except UsageError:
        return False
    return True


def patterns_of(odd: Sequence[FileInfo]) -> list[str]:
    """Return what leaves out files of no known kind, and none of the others: the suffix of each, or its name."""
    return list(dict.fromkeys(_pattern(posixpath.basename(info.path)) for info in odd))


def _pattern(name: str) -> str:
    stem, end = posixpath.splitext(name)
    if end.lower() in _COMPRESSED:  # '*.gz' would leave out a.jsonl.gz with a.tar.gz
        inner = posixpath.splitext(stem)[1]
        end = inner + end if inner else ""
    return f"*{end}" if end else name


def unread(odd: Sequence[FileInfo]) -> str:
    """Say which files are of no known kind, and how to leave them out."""
    names = [info.path for info in odd]
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    shown, patterns = shlex.join(names[:_NAMED]), patterns_of(odd)
    left = f" and {len(patterns) - _NAMED:,} more" if len(patterns) > _NAMED else ""
    return (
        f"{counted(len(names), 'file')} of no kind that convert reads: {shown}{more}. Expected {' '.join(_KINDS)}, or their names in --skip: "
        f"--skip {shlex.join(patterns[:_NAMED])}{left}"
    )


def _stem(stem: str, kind: Kind) -> str:
    """Drop the suffixes of the members from the name of a tar."""
    if kind != "tar":
        return stem
    for suffix in (*_COMPRESSED, ".jsonl", ".json", ".ndjson", ".txt"):
        if stem.lower().endswith(suffix) and len(stem) > len(suffix):
            stem = stem[: -len(suffix)]
    return stem


def known_suffixes() -> tuple[str, ...]:
    """All suffixes that `split_suffix` knows, for error texts and help."""
    plain = tuple(_KINDS)
    packed = tuple(
        suffix + last for suffix, kind in _KINDS.items() if kind not in _CONTAINERS for last in _COMPRESSED
    )
    return (*plain, *packed, *_COMPRESSED)


def document_path(path: str) -> str:
    """Return where the documents of a raw file go, below ``documents/``: the same path with the suffix ``.jsonl.gz``."""
    return f"{split_suffix(path).stem}.jsonl.gz"
