"""Tar archives of JSON lines or text files, such as lm_dataformat's ``.jsonl.zst.tar``.

The archive is read once from front to end, never unpacked to disk. Rows count through all members, so that generated ids are unique
in the archive; a bad record is said to stand in ``<archive>#<member>``. Folders and hidden members (``.DS_Store``, ``._x``) are passed
over. A text member's id is the archive's stem and the member's name.
"""

import tarfile
from collections.abc import Iterator
from contextlib import closing
from typing import IO, cast

import xxhash

from dolma_dask.errors import CorruptFileError
from dolma_dask.io.files import READ_BYTES, FileInfo
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import Member, Section, StoredFile
from dolma_dask.sources.base import BlockBuilder, RawFile, finish
from dolma_dask.sources.jsonl import read_json_lines
from dolma_dask.sources.naming import RawName, split_suffix
from dolma_dask.sources.text import add_text


class TarArchive(RawFile):
    """The records of all members of one uncompressed tar."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`.

        Raises `UsageError`: a member has an unknown suffix.
        """
        with closing(StoredFile(self.url)) as stored:
            yield from self._members(_Watched(stored))
            finish(stored, self.path, inputs)

    def _members(self, watched: "_Watched") -> Iterator[Block]:
        row = 0
        try:
            with tarfile.open(fileobj=cast(IO[bytes], watched), mode="r|") as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isfile() else None
                    if content is None or member.name.rsplit("/", 1)[-1].startswith("."):
                        continue
                    for block in self._read(_MemberFile(self.url, member, content, row)):
                        yield block
                        row = block.first_row + block.num_rows
        except tarfile.TarError as error:
            raise self._corrupt(watched, str(error)) from error
        if not watched.ends_in_zeros:
            raise self._corrupt(watched, "no end-of-archive block")

    def _read(self, file: "_MemberFile") -> Iterator[Block]:
        name = split_suffix(file.name)
        if name.kind == "text":
            yield self._text(file, name)
        else:
            yield from read_json_lines(self, file, name.compression)

    def _text(self, file: "_MemberFile", name: RawName) -> Block:
        builder = BlockBuilder(file.section.start.row)
        path = f"{split_suffix(self.path).stem}/{file.name}"
        add_text(builder, self, file, name.compression, path)
        return builder.take()

    def _corrupt(self, watched: "_Watched", found: str) -> CorruptFileError:
        return CorruptFileError(
            f"{self.url}: not a complete tar archive ({found}), at stored byte {watched.position}; expected tar headers up to two "
            "blocks of zeros. Fetch or write the file again.",
            url=self.url,
            offset=watched.position,
        )


class _Watched:
    """Remembers how the stored bytes ended: `tarfile` takes an archive that is cut between two members for a complete one."""

    def __init__(self, stored: StoredFile) -> None:
        self._stored = stored
        self._tail = b""

    def read(self, size: int = -1) -> bytes:
        data = self._stored.read(READ_BYTES if size < 0 else size)
        self._tail = (
            (self._tail + data)[-tarfile.BLOCKSIZE :]
            if len(data) < tarfile.BLOCKSIZE
            else data[-tarfile.BLOCKSIZE :]
        )
        return data

    @property
    def position(self) -> int:
        return self._stored.position

    @property
    def ends_in_zeros(self) -> bool:
        return self._tail == bytes(tarfile.BLOCKSIZE)


class _MemberFile(StoredFile):
    """A member read like a file; its rows go on from those of the members before it."""

    def __init__(self, url: str, member: tarfile.TarInfo, content: IO[bytes], row: int) -> None:
        self.url = f"{url}#{member.name}"
        self.name = member.name
        self.info = FileInfo(self.url, member.size, "")
        self.section = Section(Member(row=row))
        self.position = 0
        self._content = content
        self._digest = xxhash.xxh3_128()

    def read(self, size: int = READ_BYTES) -> bytes:
        """Return up to `size` further bytes, empty at the end of the member."""
        data = self._content.read(size)
        self.position += len(data)
        return data

    def close(self) -> None:
        """Leave the archive open."""
