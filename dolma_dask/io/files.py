"""Files behind URLs: listing, identity and opening, local or through fsspec.

Local paths never go through fsspec: `os.stat` gives nanoseconds, and the command line starts faster. A file's *stamp* says
"these are the same bytes as last time" without reading them: ``mtime_ns`` locally, the ETag on an object store.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import xxhash

READ_BYTES = 1 << 20
"""Bytes asked from a file at a time: large enough for a disk, small enough for the cache."""


@dataclass(frozen=True)
class FileInfo:
    """A file and its identity.

    Attributes
    ----------
    path : str
        Relative to what was listed, with ``/``.
    bytes : int
        Stored size.
    stamp : str
        Changes whenever the file is written again.
    """

    path: str
    bytes: int
    stamp: str


def is_local(url: str) -> bool:
    """Tell whether `url` is a path of this machine."""
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> Path:
    """Return the path behind a local `url`."""
    return Path(url.removeprefix("file://"))


def join(root: str, path: str) -> str:
    """Append a relative `path` to a root URL."""
    return f"{root.rstrip('/')}/{path}" if path else root.rstrip("/")


def normalize(url: str) -> str:
    """Return `url` without a trailing slash; local paths become absolute, so that workers find them."""
    url = os.fspath(url)
    return str(local_path(url).expanduser().absolute()) if is_local(url) else url.rstrip("/")


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system behind a remote `url`, and the path in it."""
    import fsspec

    return cast(tuple[Any, str], fsspec.core.url_to_fs(url))


def stat(url: str) -> FileInfo | None:
    """Return size and stamp of one file, or None if there is none."""
    if is_local(url):
        try:
            found = local_path(url).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileInfo(url, found.st_size, f"mtime:{found.st_mtime_ns}")
    fs, path = filesystem(url)
    fs.invalidate_cache(path)
    try:
        return _remote_info(url, fs.info(path))
    except FileNotFoundError:
        return None


def _remote_info(path: str, info: dict[str, Any]) -> FileInfo:
    tag = info.get("ETag") or info.get("etag") or info.get("mtime") or info.get("LastModified")
    return FileInfo(path, int(info["size"]), f"tag:{str(tag).strip(chr(34))}")


def list_files(root: str) -> list[FileInfo]:
    """List all files below `root`, hidden ones left out, sorted by the UTF-8 bytes of their relative paths."""
    found = _list_local(local_path(root)) if is_local(root) else _list_remote(root)
    return sorted(found, key=lambda info: info.path.encode())


def _list_local(root: Path) -> Iterator[FileInfo]:
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                path = Path(folder, name)
                info = path.stat()
                yield FileInfo(path.relative_to(root).as_posix(), info.st_size, f"mtime:{info.st_mtime_ns}")


def _list_remote(root: str) -> Iterator[FileInfo]:
    fs, base = filesystem(root)
    fs.invalidate_cache()
    for path, info in fs.find(base, detail=True).items():
        relative = path[len(base) :].lstrip("/")
        if info["type"] == "file" and not any(part.startswith(".") for part in relative.split("/")):
            yield _remote_info(relative, info)


def list_folders(root: str) -> list[str]:
    """Names of the folders directly below `root`, sorted; empty if there is no such folder."""
    if is_local(root):
        path = local_path(root)
        names = [item.name for item in path.iterdir() if item.is_dir()] if path.is_dir() else []
    else:
        fs, base = filesystem(root)
        found = fs.ls(base, detail=True) if fs.isdir(base) else []
        names = [item["name"].rstrip("/").rsplit("/", 1)[-1] for item in found if item["type"] == "directory"]
    return sorted(name for name in names if not name.startswith("."))


def open_read(url: str) -> BinaryIO:
    """Open a file for reading bytes as they are stored."""
    if is_local(url):
        return local_path(url).open("rb", buffering=0)
    fs, path = filesystem(url)
    return cast(BinaryIO, fs.open(path, "rb", block_size=8 * READ_BYTES, cache_type="readahead"))


def read_bytes(url: str) -> bytes:
    """Return the whole of a small file."""
    with open_read(url) as handle:
        return handle.read()


def remove(url: str) -> None:
    """Delete a file; none there is fine."""
    if is_local(url):
        local_path(url).unlink(missing_ok=True)
        return
    fs, path = filesystem(url)
    if fs.exists(path):
        fs.rm_file(path)


def checksum(url: str) -> str:
    """Return the xxh3-128 hex digest of a file's stored bytes."""
    digest = xxhash.xxh3_128()
    with open_read(url) as handle:
        while piece := handle.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()
