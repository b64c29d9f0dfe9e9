"""Tar archives of JSON lines or text files, such as lm_dataformat's ``.jsonl.zst.tar``.

The archive is read once from front to end, never unpacked to disk. Every byte of it is accounted for: a damaged header is an error, and so is
what stands behind the end, unless it is another archive, which is read too. Rows count through all members, so that generated ids are unique
in the archive; a bad record is said to stand in ``<archive>#<member>``. Hidden members (``.DS_Store``, ``._x``), links, devices and the like
are skipped, as are markers such as ``_SUCCESS`` and what the user names, and named in `Block.skipped`; folders hold nothing. A text member's id is the archive's stem and the member's name.
"""

import tarfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import IO, Self, cast

import pyarrow as pa
import xxhash
from msgspec.structs import replace

from dolma_dask.errors import CorruptFileError
from dolma_dask.formats import layout
from dolma_dask.io.files import READ_BYTES, FileInfo
from dolma_dask.io.records import Block, InputRecord
from dolma_dask.io.stream import Member, Section, StoredFile
from dolma_dask.sources.base import SCHEMA, BlockBuilder, RawFile, finish
from dolma_dask.sources.csv import read_csv
from dolma_dask.sources.functions import DOCUMENTS
from dolma_dask.sources.jsonl import read_json_lines
from dolma_dask.sources.mbox import read_mbox
from dolma_dask.sources.naming import SINGLE, RawName, split_suffix
from dolma_dask.sources.text import add_text
from dolma_dask.sources.warc import read_warc

_KINDS = {
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symlink",
    tarfile.CHRTYPE: "device",
    tarfile.BLKTYPE: "device",
    tarfile.FIFOTYPE: "pipe",
}
"""Types of members that are no files, for people."""


class TarArchive(RawFile, frozen=True):
    """The records of all members of one uncompressed tar."""

    def read(self, inputs: list[InputRecord] | None = None) -> Iterator[Block]:
        """Yield the documents; see `dolma_dask.sources.base.Source`.

        Raises `UsageError`: a member has an unknown suffix.
        """
        with closing(StoredFile(self.url)) as stored:
            yield from self._members(stored)
            finish(stored, self.path, inputs)

    @property
    def _schema(self) -> pa.Schema:
        return self.lines.schema if self.lines else DOCUMENTS if self.function else SCHEMA

    def _members(self, stored: StoredFile) -> Iterator[Block]:
        row = 0
        try:
            with _Archive.open(
                fileobj=cast(IO[bytes], stored),
                mode="r|",
                tarinfo=_Header,
                ignore_zeros=True,
                encoding="utf-8",
                errors="backslashreplace",
            ) as archive:
                while (member := archive.next()) is not None:
                    archive.members.clear()
                    if reason := _reason_to_skip(member, self.skip):
                        nothing = BlockBuilder(row, self._schema).take()
                        yield replace(nothing, skipped=(f"{self.url}#{member.name} ({reason})",))
                    elif content := archive.extractfile(member):
                        for block in self._read(_MemberFile(self.url, member, content, row)):
                            yield block
                            row = block.first_row + block.num_rows
        except tarfile.TarError as error:
            raise CorruptFileError(
                f"{self.url}: not a complete tar archive ({error}), before stored byte {stored.position}; expected tar headers up to two "
                "blocks of zeros, and behind them nothing or another archive. Fetch or write the file again.",
                url=self.url,
                offset=stored.position,
            ) from error

    def _read(self, file: "_MemberFile") -> Iterator[Block]:
        name = split_suffix(file.name)
        if name.kind in SINGLE:
            yield self._text(file, name)
        elif name.kind in ("csv", "tsv"):
            yield from read_csv(self, file, name.compression, file.name)
        elif name.kind == "mbox":
            yield from read_mbox(self, file, name.compression)
        elif name.kind == "warc":
            yield from read_warc(self, file, name.compression)
        elif name.kind == "jsonl":
            yield from read_json_lines(self, file, name.compression)
        else:
            raise CorruptFileError(
                f"{file.url}: {name.kind} inside of a tar archive; expected JSON lines, CSV, text, web pages, mail or WARC. Unpack the archive.",
                url=file.url,
            )

    def _text(self, file: "_MemberFile", name: RawName) -> Block:
        builder = BlockBuilder(file.section.start.row, self._schema)
        path = f"{split_suffix(self.path).stem}/{file.name}"
        add_text(builder, self, file, name.compression, path)
        return builder.take()


def _reason_to_skip(member: tarfile.TarInfo, skip: Sequence[str]) -> str:
    """Say why a member has no records; empty if it has, and for a folder."""
    if member.name.rsplit("/", 1)[-1].startswith("."):
        return "" if member.isdir() else "hidden"
    if member.isfile():
        return (
            "skipped by name"
            if layout.is_named(member.name, skip)
            else "marker"
            if layout.is_marker(member.name, is_raw=True)
            else ""
        )
    return "" if member.isdir() else _KINDS.get(member.type, f"type {member.type!r}")


class _Archive(tarfile.TarFile):
    """An archive, and those appended to it."""

    members: list[tarfile.TarInfo]  # of those read so far
    start = 0  # where the one begins that is being read
    zeros = 0  # blocks of zeros that have just been read

    def check_end(self, zeros: int, at: int) -> None:
        """Refuse blocks of zeros before a header at a byte, unless they end an archive: two of them, or up to a full record."""
        if zeros == 1 or (zeros > 2 and (at - self.start) % tarfile.RECORDSIZE):
            raise tarfile.ReadError(f"at byte {at}: {zeros} blocks of zeros, where members may have been")
        self.start = at if zeros else self.start


_ZEROS: type[tarfile.HeaderError] = tarfile.EOFHeaderError  # type: ignore[attr-defined]
_FILE_END: type[tarfile.HeaderError] = tarfile.EmptyHeaderError  # type: ignore[attr-defined]


class _Header(tarfile.TarInfo):
    """The header of a member, or an error: `tarfile` itself takes a damaged one for the end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        if len(buf) < tarfile.BLOCKSIZE and not buf.strip(b"\0"):
            raise _FILE_END("no end-of-archive block")
        return super().frombuf(buf, encoding, errors)

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        assert isinstance(archive, _Archive)
        at = archive.fileobj.tell()
        zeros, archive.zeros = archive.zeros, 0
        try:
            header = super().fromtarfile(archive)
        except _ZEROS:
            archive.zeros = zeros + 1
            raise
        except (tarfile.HeaderError, ValueError) as error:
            if isinstance(error, _FILE_END) and zeros:
                archive.zeros = zeros  # an empty archive is asked again
                raise
            raise tarfile.ReadError(f"at byte {at}: {error}") from error
        archive.check_end(zeros, at)
        return header


class _MemberFile(StoredFile):
    """A member read like a file; its rows go on from those of the members before it."""

    def __init__(self, url: str, member: tarfile.TarInfo, content: IO[bytes], row: int) -> None:
        self.url = f"{url}#{member.name}"
        self.name = member.name
        self.info = FileInfo(self.url, member.size, "")
        self.section = Section(Member(row=row))
        self.position = 0
        self.window_bytes = 0
        self._content = content
        self._digest = xxhash.xxh3_128()

    def rewind(self) -> None:
        """Refuse: an archive is read once."""
        raise CorruptFileError(
            f"{self.url}: a zstd frame with a long window after others, or a long record of a WARC file whose Content-Length is wrong; a member of an archive is not read twice. Unpack the archive.",
            url=self.url,
        )

    def read(self, size: int = READ_BYTES) -> bytes:
        """Return up to `size` further bytes, empty at the end of the member."""
        data = self._content.read(size)
        self.position += len(data)
        return data

    def close(self) -> None:
        """Leave the archive open."""
