"""Which raw files there are: files, folders and globs, local or remote, as one listing with paths relative to one folder."""

import posixpath
import re
from collections.abc import Sequence
from itertools import takewhile

from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo


def list_raw(inputs: Sequence[str]) -> tuple[str, list[FileInfo]]:
    """List raw files.

    Parameters
    ----------
    inputs : sequence of str
        Files, folders or globs (``*``, ``?``, ``**``).

    Returns
    -------
    tuple of str and list of FileInfo
        The folder that holds them all, and the files with paths relative to it, sorted.

    Raises
    ------
    UsageError
        Nothing was found for one of `inputs`.
    """
    found = {info.path: info for item in inputs for info in _list_one(files.normalize(item))}
    bases = [_fixed_part(files.normalize(item)) for item in inputs]
    base = bases[0] if len(set(bases)) == 1 else _common_folder(bases)
    relative = [
        FileInfo(path[len(base) :].lstrip("/"), info.bytes, info.stamp) for path, info in found.items()
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
    """Return the folder from which the paths of an input are told."""
    if _is_pattern(url):
        return "/".join(takewhile(lambda part: not set("*?") & set(part), url.split("/")))
    return url if _is_folder(url) else posixpath.dirname(url)


def _list_one(url: str) -> list[FileInfo]:
    """List one input with absolute paths."""
    if not _is_pattern(url) and not _is_folder(url):
        info = files.stat(url)
        listed = [] if info is None else [FileInfo(url, info.bytes, info.stamp)]
    else:
        base = _fixed_part(url)
        found = (
            FileInfo(files.join(base, info.path), info.bytes, info.stamp) for info in files.list_files(base)
        )
        listed = [info for info in found if base == url or _glob_matches(info.path, url)]
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
