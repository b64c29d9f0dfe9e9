#!/usr/bin/python3
"""A folder as a node sees it whose file system is late, as NFS is: what other nodes write and remove is seen `seconds` later.

``late_files.py FOLDER PLACE SECONDS`` mounts FOLDER at PLACE until it is unmounted (needs the Debian package python3-fuse and root). Until a file of another mount is
`seconds` old, measured from its last rename, it is neither there nor listed; a listing is kept for as long, unless this mount changes the folder itself. Folders, and all that this mount writes, are seen at once.
"""
# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH115, PTH120, PTH208, PTH211

import os
import stat
import sys
import time

import fuse

fuse.fuse_python_api = (0, 2)

folder, place, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
opened = os.open(folder, os.O_PATH)  # its path may be that of a mount later
own: set[tuple[str, int]] = set()  # files that this mount has written: numbers are given out again
listings: dict[str, tuple[float, list[str]]] = {}  # when, and names


def real(path: str) -> str:
    return f"/proc/self/fd/{opened}{path}"


def changed(path: str, *, is_own: bool = True) -> None:
    """Note a change that this mount has made."""
    listings.pop(os.path.dirname(path), None)
    if is_own:
        own.add((path, os.lstat(real(path)).st_ino))


def seen(path: str) -> os.stat_result:
    """Return the status of a file; raise FileNotFoundError if it is not seen yet."""
    status = os.lstat(real(path))
    is_foreign = stat.S_ISREG(status.st_mode) and (path, status.st_ino) not in own
    if is_foreign and time.time() - status.st_ctime < seconds:
        raise FileNotFoundError(2, "not seen yet", path)
    return status


class Handle:
    """An open file."""

    def __init__(self, path: str, flags: int, *mode: int) -> None:
        if not flags & os.O_CREAT:
            seen(path)
        self.file = os.open(real(path), flags & ~os.O_APPEND, *mode)
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            changed(path)

    def read(self, length: int, offset: int) -> bytes:
        return os.pread(self.file, length, offset)

    def write(self, data: bytes, offset: int) -> int:
        return os.pwrite(self.file, data, offset)

    def ftruncate(self, length: int) -> None:
        os.ftruncate(self.file, length)

    def fsync(self, only_data: int) -> None:
        os.fsync(self.file)

    def release(self, flags: int) -> None:
        os.close(self.file)


class LateFiles(fuse.Fuse):
    """The file system."""

    def getattr(self, path):
        return seen(path)

    def readdir(self, path, offset):
        path = path.rstrip("/")
        when, names = listings.get(path, (0.0, []))
        if time.time() - when > seconds:
            names = [name for name in os.listdir(real(path)) if self.is_seen(f"{path}/{name}")]
            listings[path] = time.time(), names
        return [fuse.Direntry(name) for name in [".", "..", *names]]

    def is_seen(self, path):
        try:
            return bool(seen(path))
        except FileNotFoundError:
            return False

    def unlink(self, path):
        os.unlink(real(path))
        changed(path, is_own=False)

    def rename(self, path, target):
        seen(path)
        os.rename(real(path), real(target))
        changed(path, is_own=False)
        changed(target)

    def mkdir(self, path, mode):
        os.mkdir(real(path), mode)
        changed(path)

    def rmdir(self, path):
        os.rmdir(real(path))
        changed(path, is_own=False)

    def symlink(self, target, path):
        os.symlink(target, real(path))
        changed(path)

    def readlink(self, path):
        return os.readlink(real(path))

    def truncate(self, path, length):
        os.truncate(real(path), length)

    def chmod(self, path, mode):
        os.chmod(real(path), mode)

    def utimens(self, path, accessed, modified):
        times = [each.tv_sec * 10**9 + each.tv_nsec for each in (accessed, modified)]
        os.utime(real(path), ns=tuple(times))

    def statfs(self):
        return os.statvfs(real("/"))


if __name__ == "__main__":
    server = LateFiles(dash_s_do="setsingle")
    server.file_class = Handle
    server.parse([place, "-s", "-o", "nonempty,big_writes,attr_timeout=0,entry_timeout=0"])
    server.main()
