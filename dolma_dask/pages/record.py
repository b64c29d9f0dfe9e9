"""A page, the JSON beside it, and its record in the journal of the dataset: it stays as it is while no file that it could show has changed.

Files are compared by path, size and time stamp, as a listing tells them: no byte of them is read. A copy that has other time stamps makes its page again.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

import dolma_dask
from dolma_dask.display import last_name
from dolma_dask.errors import StoreAccessError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, is_same_file, work_key
from dolma_dask.registry import names_of

VERB = "report"

VERSION = 20
"""Raised whenever a page says something else of the same documents and journals, or looks otherwise."""


class Page(Struct, frozen=True):
    """A page that was drawn, not written yet."""

    html: str
    json: bytes
    counts: Mapping[str, int]
    shards: int  # that were read
    notes: Sequence[str]


def json_url(target: str) -> str:
    """Return where the content of a page stands as JSON."""
    return target.removesuffix(".html") + ".json"


def page_key(choices: Mapping[str, Any], roots: Sequence[str]) -> str:
    """Return the digest of what decides a page: choices of the call, and the files below datasets and folders of tokens; empty if a store has no time stamps."""
    listed = [[(info.path, info.bytes, info.stamp) for info in _files(root)] for root in roots]
    if not all(stamp for found in listed for *_, stamp in found):
        return ""
    return work_key(VERB, VERSION, {**choices, "files": listed})


def _files(root: str) -> Iterator[FileInfo]:
    """Yield the files of a dataset or of a folder of tokens; beside the folders of a dataset lies what others have put there."""
    listed = files.list_files(root)
    is_dataset = any(info.path.startswith(f"{layout.DOCUMENTS}/") for info in listed)
    pages = {info.path for info in listed if info.path.endswith(".html")}
    left_out = pages | set(map(json_url, pages))
    folders = (f"{layout.WORK}/", *(f"{layout.JOURNAL}/{verb}/" for verb in names_of("page")))
    for info in listed:
        is_beside = is_dataset and "/" not in info.path
        if not is_beside and info.path not in left_out and not info.path.startswith(folders):
            yield info


class PageFiles(Struct, frozen=True):
    """A page and the JSON beside it, as the journal of a dataset knows them."""

    root: str  # of the dataset that it shows; the journal is there
    target: str
    key: str

    @property
    def unit(self) -> str:
        """The page, by its path relative to the dataset where both are local: the same after both were moved."""
        is_local = files.is_local(self.target) and files.is_local(self.root)
        return files.relative(self.root, self.target) if is_local else self.target

    @property
    def _urls(self) -> tuple[str, str]:
        return json_url(self.target), self.target

    def unchanged(self) -> Record | None:
        """Return the record of the page if it is as this call would make it."""
        known = Journal(self.root, VERB).records.get(self.unit)
        if known is None or not self.key or known.key != self.key:
            return None
        written = msgspec.convert(known.info["written"], list[InputRecord])
        is_as_written = all(map(is_same_file, written, self._urls, map(files.stat, self._urls)))
        return known if is_as_written else None

    def write(self, page: Page, started: float) -> Record:
        """Write the JSON, then the page, each complete or not at all; return the record of both."""
        written = []
        for url, content in zip(self._urls, (page.json, page.html.encode()), strict=True):
            with publish(url) as out:
                out.write(content)
            info = files.stat(url)
            written.append(InputRecord(last_name(url), out.bytes, info.stamp if info else "", out.checksum))
        return Record(
            unit=self.unit,
            shard=self.unit,
            key=self.key,
            counts=dict(page.counts),
            info={"written": msgspec.to_builtins(written), "shards": page.shards, "notes": list(page.notes)},
            seconds=round(time.monotonic() - started, 4),
            finished=time.time(),
        )

    def remember(self, record: Record, params: Mapping[str, Any], cpu: float) -> str | None:
        """Write the record to the journal; return what a person should know if that cannot be."""
        journal = Journal(self.root, VERB)
        try:
            sweep(journal.folder)
            writer = journal.start(params, (self.unit,), dolma_dask.__version__)
            try:
                writer.add(record)
                writer.finish(0, cpu=cpu)
            finally:
                writer.close()
        except (OSError, StoreAccessError) as error:  # a dataset that may only be read has a page too
            return f"the same command will make the page again, because it cannot be recorded in {self.root}: {error}"
        return None
