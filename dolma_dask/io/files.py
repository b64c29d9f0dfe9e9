"""Files behind URLs: listing, identity and opening, local or through fsspec.

Local paths never go through fsspec: `os.stat` gives nanoseconds, and the command line starts faster. A file's *stamp* says
"these are the same bytes as last time" without reading them: ``mtime_ns`` locally, the ETag on an object store.
What cannot be listed is an error: a folder without permission or a dangling link would be documents lost in silence.
"""

import errno
import os
import posixpath
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate, starmap
from operator import attrgetter
from pathlib import Path
from stat import S_ISDIR
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import unquote

import xxhash
from msgspec import Struct

from dolma_dask.errors import CorruptFileError, StoreError, UsageError
from dolma_dask.io.stores import RemoteFile, at_once, check_bucket, check_url, filesystem, is_s3, patiently
from dolma_dask.io.waiting import let_appear, waits

Item = TypeVar("Item")

READ_BYTES = 1 << 20
"""Bytes read from a file at a time: large enough for a disk, small enough for the cache."""

_STAMPS = ("ETag", "etag", "generation", "mtime", "LastModified", "last_modified", "created")
"""Names that stores use for the tag that changes with every write, best first."""


class FileInfo(Struct, frozen=True, gc=False):
    """A file and its identity."""

    path: str  # relative to what was listed, with ``/``
    bytes: int  # stored size
    stamp: str  # changes whenever the file is written again; empty if the store has no such thing


class Input(Struct, frozen=True, gc=False):
    """A file that is read: where it is now, and what the listing said."""

    url: str
    info: FileInfo


_LOCAL = ("file://", "local://")

_ALIASES = {"s3a": "s3", "gcs": "gs"}
"""Further names of stores."""


def is_local(url: str) -> bool:
    """Tell whether `url` is a path of this machine."""
    return "://" not in url or url.startswith(_LOCAL)


def is_web(url: str) -> bool:
    """Tell whether a URL is one of http or https, where nothing can be listed."""
    return url.startswith(("http://", "https://"))


def is_in_memory(url: str) -> bool:
    """Tell whether a file lies in the memory of this process (fsspec's ``memory://``)."""
    return url.startswith("memory://")


def local_path(url: str) -> Path:
    """Return the path behind a local `url`."""
    return Path(_local_name(url))


def _local_name(url: str) -> str:
    """Return the same as text: for what is done with every file."""
    return url.partition("://")[2] if url.startswith(_LOCAL) else url


def join(root: str, path: str) -> str:
    """Append a relative `path` to a root URL.

    Raises `CorruptFileError`: the path leads out of the root, such as one in the journal of a hostile dataset.
    """
    if not is_inside(path):
        raise CorruptFileError(
            f"{path!r}: a path that leads out of {root}; expected one below it. Whoever wrote it, a journal, a listing or a sidecar, is not to "
            "be trusted: look at where this data comes from.",
            url=root,
            path=path,
        )
    return f"{root.rstrip('/')}/{path}" if path else root.rstrip("/")


def relative(root: str, url: str) -> str:
    """Return where `url` is, seen from `root`: the same after both were moved, on this machine or in one bucket; "." is the root itself."""
    if is_local(root) and is_local(url):
        return os.path.relpath(local_path(url), local_path(root))
    root, url = resolved(root), resolved(url)
    if _bucket(root) == _bucket(url):
        return posixpath.relpath(url.partition("://")[2], root.partition("://")[2])
    return url


def seen_from(root: str, path: str) -> str:
    """Return the URL of what `relative` describes: on this machine if `root` is, else in its bucket or on a store of its kind.

    Raises `CorruptFileError`: it is no such place.
    """
    if is_local(root):
        return os.path.normpath(f"{local_path(root)}/{path}")
    root = resolved(root)
    bucket, protocol = _bucket(root), root.partition("://")[0]
    url = (
        path if "://" in path else f"{protocol}://{posixpath.normpath(f'{root[len(protocol) + 3 :]}/{path}')}"
    )
    if url.startswith(f"{bucket}/") or ("://" in path and resolved(url).startswith(f"{protocol}://")):
        return url
    raise CorruptFileError(
        f"{path!r} is no place that {root} may name; expected one on the same store.", url=root
    )


def _bucket(url: str) -> str:
    """Return the store and the bucket of a URL."""
    protocol, _, path = url.partition("://")
    return f"{protocol}://{path.partition('/')[0]}"


def is_inside(path: str) -> bool:
    """Tell whether a relative path stays below its root, however a store or system may read it."""
    if path.startswith(("/", "\\")) or "://" in path:
        return False
    if ".." not in path and "%2" not in path:
        return True
    return all(".." not in re.split(r"[/\\]", text) for text in (path, unquote(path)))


MAX_NAME_BYTES = 255
"""Limit of a name on file systems."""


_PLAIN = re.compile(r"[\w+=@,-][\w+=@,.-]*(?:/[\w+=@,-][\w+=@,.-]*)*", re.ASCII)
"""Paths of files with nothing that could mean more than it says."""


def is_file_inside(path: str) -> bool:
    """Tell whether a relative path can be that of a file below its root."""
    if len(path) <= MAX_NAME_BYTES and _PLAIN.fullmatch(path):
        return True
    parts = path.split("/")
    is_name = all(part not in ("", ".") and len(os.fsencode(part)) <= MAX_NAME_BYTES for part in parts)
    return is_name and "\0" not in path and is_inside(path)


def check_links(root: str, folder: str, hint: str = "") -> None:
    """Check that a folder below a local root, in which files are replaced or removed, really lies there.

    Raises `UsageError`: links lead out of the root.
    """
    if not is_local(root):
        return
    top, real = (os.path.realpath(local_path(url)) for url in (root, join(root, folder)))
    if not f"{real}/".startswith(f"{top.rstrip('/')}/"):
        raise UsageError(
            f"{folder} of {root} lies behind a link, in {real}; expected files that may be replaced or removed to lie below the root. Put a "
            f"folder in the place of the link, or run where the files really are.{hint}",
            root=root,
            folder=folder,
        )


def parent(url: str) -> str:
    """Return the folder that holds a normalized `url`; empty for the top of a file system or store."""
    above, _, name = url.partition("://")[2].rpartition("/") if not is_local(url) else url.rpartition("/")
    return (url.removesuffix(f"/{name}") or "/") if name and (above or is_local(url)) else ""


def normalize(url: str) -> str:
    """Return `url` without a trailing slash; local paths become absolute, so that workers find them.

    Raises `UsageError`: it holds credentials, or the name of a store with one slash, which may.
    """
    url = os.fspath(url)
    if is_local(url):
        if store := re.match(r"(s3|s3a|gs|gcs|https?|hf|s?ftp|az|abfs):/", url):
            raise UsageError(
                f"{store[0]}...: one slash; expected an address such as {store[0]}/BUCKET/FOLDER."
            )
        return _absolute(url)
    check_url(url)
    return url.rstrip("/")


def _absolute(url: str) -> str:
    try:
        path = local_path(url).expanduser().absolute()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.stat()
    except (OSError, ValueError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{url[:200]!r} is no path of this machine ({why}); expected a file, a folder or a URL."
        ) from error
    return str(path)


def resolved(url: str) -> str:
    """Return `url` with links of a local path followed and one name for a store, so that two names of one folder are equal."""
    if is_local(url):
        return str(local_path(url).resolve())
    protocol, _, path = url.partition("://")
    return f"{_ALIASES.get(protocol, protocol)}://{path}"


def stat(url: str) -> FileInfo | None:
    """Return size and stamp of one file, or None if there is none (a folder is no file)."""
    if is_local(url):
        try:
            status = os.stat(_local_name(url))  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError, ValueError):  # a name with a zero byte is none
            return None
        return None if S_ISDIR(status.st_mode) else _local_info(url, status)
    fs, path = filesystem(url)

    def look() -> dict[str, Any]:
        fs.invalidate_cache(path)
        return cast(dict[str, Any], fs.info(path))

    try:
        info = patiently(url, look)
    except FileNotFoundError:
        return None
    return None if info["type"] == "directory" else _remote_info(url, info)


def _local_info(path: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path, status.st_size, f"mtime:{status.st_mtime_ns}")


_SETTLED_SECONDS = 2.0
"""Until a file that is written again surely has another time stamp."""


def is_settled(info: FileInfo) -> bool:
    """Tell whether a file that has the same size and stamp later is the same: one that was written just now may be written again within a tick of the clock."""
    kind, _, stamp = info.stamp.partition(":")
    return bool(stamp) and (kind != "mtime" or time.time_ns() - int(stamp) > _SETTLED_SECONDS * 1e9)


def _remote_info(path: str, info: dict[str, Any]) -> FileInfo:
    tag = next((info[name] for name in _STAMPS if info.get(name)), None)
    if isinstance(tag, datetime):
        tag = tag.timestamp()
    if info["size"] is None:
        raise StoreError(
            f"{path}: the server does not tell the size of the file; expected a header Content-Length. Fetch it first: dolma-dask download.",
            url=path,
        )
    return FileInfo(path, int(info["size"]), "" if tag is None else f"tag:{str(tag).strip(chr(34))}")


def list_files(root: str) -> list[FileInfo]:
    """List all files below `root`, hidden ones left out, sorted by the UTF-8 bytes of their relative paths.

    Links to files and folders are followed. There is no such folder: no files.

    Raises `CorruptFileError`: a link leads nowhere or in a circle, something is a pipe or device, or a name is not UTF-8. Raises `PermissionError`: a folder may not be
    read.
    """
    if is_local(root):
        listed: Iterable[FileInfo] = filter(None, starmap(_entry_info, _list_local(local_path(root))))
    else:
        listed = _list_remote(root)
    # texts are in the order of their UTF-8 bytes
    found = sorted(listed, key=attrgetter("path"))
    _check_names([info.path for info in found])
    return found


def list_paths(root: str) -> list[str]:
    """List the relative paths of the same files: on this machine, without a look at each."""
    if not is_local(root):
        return [info.path for info in list_files(root)]
    found = sorted(path for path, _ in _list_local(local_path(root)))
    _check_names(found)
    return found


def _check_names(paths: Sequence[str]) -> None:
    try:
        "".join(paths).encode()
    except UnicodeEncodeError as error:
        bad = next(
            path for path, end in zip(paths, accumulate(map(len, paths)), strict=True) if error.start < end
        )
        raise CorruptFileError(
            f"{bad!r}: a file name that is not UTF-8; expected names in UTF-8, which journals and reports can write. "
            "Rename the file."
        ) from None


def _entry_info(path: str, entry: os.DirEntry[str]) -> FileInfo | None:
    """Return what the listing says of a file; None: it was removed meanwhile."""
    try:
        return _local_info(path, entry.stat())
    except FileNotFoundError:
        return None


def _list_local(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    if root.is_dir():
        yield from _walk(str(root), "", (os.path.realpath(root),))


def _walk(folder: str, relative: str, above: tuple[str, ...]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the files of `folder` with their relative paths; `above` holds the real paths of it and the folders it was reached through."""
    with os.scandir(folder) as entries:
        visible = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in visible:
        if entry.is_file():
            yield relative + entry.name, entry
        elif entry.is_dir():
            real = os.path.realpath(entry.path) if entry.is_symlink() else f"{above[-1]}/{entry.name}"
            if real in above:
                raise _bad_link(entry, "to a folder that holds it")
            yield from _walk(entry.path, f"{relative}{entry.name}/", (*above, real))
        elif entry.is_symlink() and not Path(entry.path).exists():
            raise _bad_link(entry, "to a file that is not there")
        else:
            raise CorruptFileError(
                f"{entry.path}: a pipe, socket or device; expected a file or folder. Write its content to a file, or remove it.",
                url=entry.path,
            )


def _bad_link(entry: os.DirEntry[str], target: str) -> CorruptFileError:
    return CorruptFileError(
        f"{entry.path}: a link {target}; expected a link to a file or another folder. Mend or remove it.",
        url=entry.path,
    )


def _list_remote(root: str) -> list[FileInfo]:
    fs, base = filesystem(root)
    prefix = f"{base.rstrip('/')}/"
    above, _, name = base.rstrip("/").rpartition("/")
    # of an empty folder s3fs asks twice whether it is a file; not of the names in the folder above that begin so
    where = {"path": above, "prefix": f"{name}/"} if above and is_s3(fs) else {"path": base}

    def find() -> dict[str, Any]:
        fs.invalidate_cache()
        return cast(dict[str, Any], fs.find(**where, detail=True))

    try:
        entries = patiently(root, find)
    except FileNotFoundError:
        entries = {}
    if not entries:
        check_bucket(root)
    listed = ((path, path.removeprefix(prefix), info) for path, info in entries.items())
    return [
        _remote_info(relative, info)
        for path, relative, info in listed
        if path.startswith(prefix) and info["type"] == "file" and "/." not in f"/{relative}"
    ]


def list_flat(root: str) -> list[FileInfo]:
    """List the files directly in `root`, whatever their names, hidden ones and dangling links left out; none if there is no such folder."""
    if not is_local(root):
        return [_remote_info(name, item) for name, item in _remote_entries(root) if item["type"] == "file"]
    path = local_path(root)
    if not path.is_dir():
        return []
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_file():
                with suppress(FileNotFoundError):  # removed meanwhile
                    found.append(_local_info(entry.name, entry.stat()))
    return found


def list_folders(root: str) -> list[str]:
    """Names of the folders directly below `root`, sorted; empty if there is no such folder."""
    return list_level(root)[0]


def list_level(root: str) -> tuple[list[str], list[str]]:
    """Names of the folders and of the files directly below `root`, each sorted, hidden ones left out; none if there is no such folder."""
    if is_local(root):
        path = local_path(root)
        found = [(item.name, item.is_dir()) for item in path.iterdir()] if path.is_dir() else []
    else:
        found = [(name, item["type"] == "directory") for name, item in _remote_entries(root)]
    visible = sorted((name, is_folder) for name, is_folder in found if not name.startswith("."))
    return [name for name, is_folder in visible if is_folder], [
        name for name, is_folder in visible if not is_folder
    ]


def _remote_entries(root: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names and details of what is directly in a folder of a store."""
    fs, base = filesystem(root)

    def look() -> list[dict[str, Any]]:
        fs.invalidate_cache()
        return cast(list[dict[str, Any]], fs.ls(base, detail=True))

    try:
        entries = patiently(root, look)
    except (FileNotFoundError, NotADirectoryError):
        return
    for item in entries:
        path = item["name"].rstrip("/")
        if path.startswith(f"{base.rstrip('/')}/"):
            yield path.rsplit("/", 1)[-1], item


def open_read(url: str, *, scattered: bool = False) -> BinaryIO:
    """Open a file for reading bytes as they are stored; `scattered`: small pieces far apart will be read, and a store is asked for these
    alone.
    """
    if not is_local(url):
        return cast(BinaryIO, RemoteFile(url, scattered))
    try:
        return open(_local_name(url), "rb", buffering=0)  # noqa: PTH123
    except IsADirectoryError as error:
        raise CorruptFileError(f"{url} is a folder; expected a file. Correct the path.", url=url) from error


def open_with_info(url: str) -> tuple[BinaryIO | None, FileInfo | None]:
    """Return the opened file and its size and stamp, for one request of a store; a local file comes without a handle. Neither if there is
    none.
    """
    if is_local(url):
        return None, stat(url)
    try:
        handle = RemoteFile(url)
        info = handle.info()
    except FileNotFoundError:
        return None, None
    if info["type"] == "directory":
        return None, None
    return cast(BinaryIO, handle), _remote_info(url, info)


def read_bytes(url: str) -> bytes:
    """Return the content of a small file."""
    if not is_local(url):
        fs, path = filesystem(url)
        try:
            return cast(bytes, patiently(url, lambda: fs.cat_file(path, **at_once(fs))))
        except FileNotFoundError:
            raise FileNotFoundError(f"{url}: no such file") from None
    with open_read(url) as handle:
        return handle.read()


def remove(url: str) -> None:
    """Delete a file, if it is there."""
    if is_local(url):
        name = _local_name(url)
        if os.path.lexists(name) or waits(url):  # mostly it is not there, and nothing need appear first
            let_appear()
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(name)  # noqa: PTH108
        return
    let_appear()
    fs, path = filesystem(url)
    with suppress(FileNotFoundError):
        patiently(url, lambda: fs.rm_file(path))


def damaged(url: str, found: str) -> CorruptFileError:
    """Remove a staging file that is not as it was written, and return the error that says so."""
    with suppress(OSError):
        remove(url)
    return CorruptFileError(
        f"{url} is damaged: found {found}; expected the file as it was written. It has been removed: run the same command again, which "
        "makes it anew.",
        url=url,
    )


def read_into(handle: BinaryIO, offset: int, view: memoryview, url: str) -> None:
    """Fill `view` from `offset` of a staging file on; one that ends before is `damaged`."""
    handle.seek(offset)
    done = 0
    while done < len(view):
        count = handle.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise damaged(url, f"its end at byte {offset + done:,}, not {offset + len(view):,}")
        done += count


def remove_tree(url: str) -> None:
    """Delete a folder with its content, if it is there."""
    let_appear()
    if is_local(url):
        folder = local_path(url)
        with suppress(FileNotFoundError):
            folder.unlink() if folder.is_symlink() else _remove_folder(folder)
        return
    fs, path = filesystem(url)

    def delete() -> None:
        fs.invalidate_cache()
        fs.rm(path, recursive=True)

    with suppress(FileNotFoundError):
        patiently(url, delete)


def _remove_folder(folder: Path) -> None:
    """Delete a folder; where what others have written or removed in it is seen late, again until it is gone."""
    from dolma_dask.io import late

    def is_gone() -> bool:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.ENOENT) or not late.may_be_late(str(folder)):
                raise
            return not folder.exists()
        return True

    if not late.wait_until(is_gone):
        shutil.rmtree(folder)


def remove_empty(url: str) -> None:
    """Delete a folder and those below it as far as they hold nothing; stores have no such folders."""
    if is_local(url):
        for folder, _, _ in os.walk(local_path(url), topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()


def checksum(url: str) -> str:
    """Return the xxh3-128 hex digest of a file's stored bytes."""
    digest = xxhash.xxh3_128()
    with open_read(url) as handle:
        while piece := handle.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def grouped(
    items: Iterable[Item], bytes_of: Callable[[Item], int], limit: int, max_items: int = sys.maxsize
) -> list[list[Item]]:
    """Group neighbours up to `limit` bytes and `max_items`, so that small ones share a task or a file; a larger one stays alone."""
    groups: list[list[Item]] = []
    size = 0
    for item in items:
        own = bytes_of(item)
        if not groups or size + own > limit or len(groups[-1]) >= max_items:
            groups.append([])
            size = 0
        groups[-1].append(item)
        size += own
    return groups


def inputs_of(root: str, infos: Iterable[FileInfo]) -> tuple[Input, ...]:
    """Return inputs for files whose paths are relative to `root`."""
    return tuple(Input(join(root, info.path), info) for info in infos)
