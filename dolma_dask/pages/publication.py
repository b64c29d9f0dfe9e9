"""A page and the JSON beside it: when they are made, and how the journal remembers them."""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import msgspec

import dolma_dask
from dolma_dask.display import last_name
from dolma_dask.engine import Input, Task, Unit, resume
from dolma_dask.errors import StoreAccessError
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, is_same_file, work_key
from dolma_dask.options.groups import RunOptions
from dolma_dask.pages.model import VERSION


@dataclass(frozen=True)
class Made:
    """A page that was made, not written yet."""

    html: str
    json: bytes
    inputs: Sequence[InputRecord]  # files as they were read
    rows: int
    counts: Mapping[str, int]
    notes: Sequence[str]


class Content(Protocol):
    """Content of a page: of one dataset, or of two beside each other."""

    @property
    def root(self) -> str:
        """Dataset that is read first."""
        ...

    def decides(self) -> Mapping[str, Any]:
        """Return all that decides the page besides the bytes of its inputs, as JSON-able values."""
        ...

    def inputs(self) -> Iterable[Input]:
        """Return the files that it is made of."""
        ...

    def make(self, run: RunOptions) -> Made:
        """Read the documents and draw the page."""
        ...


def json_url(target: str) -> str:
    """Return where the content of a page stands as JSON."""
    return target.removesuffix(".html") + ".json"


@dataclass(frozen=True)
class Page:
    """A page and the JSON beside it, as the journal of a dataset knows them."""

    root: str  # of the dataset that it shows; the journal is there
    target: str
    content: Content
    params: Mapping[str, Any]  # of the call, for the journal

    @cached_property
    def unit(self) -> Unit:
        """The page, by its path relative to the dataset where both are local: the same after both were moved."""
        name = self.target
        if files.is_local(self.target) and files.is_local(self.root):
            name = os.path.relpath(files.local_path(self.target), files.local_path(self.root))
        return Unit(name, work_key("report", VERSION, self.content.decides()))

    def unchanged(self, run: RunOptions) -> Record | None:
        """Return the record of the page if it is as this call would make it; remember new time stamps of its inputs."""
        task = Task(self.unit.name, (self.unit,), tuple(self.content.inputs()))
        state = resume.look_back_at(self.root, "report", [task], overwrite=run.overwrite)
        known = state.finished.get(self.unit.name)
        if known is None or not self._is_as_written(known):
            return None
        if state.restamped and not run.dry_run:
            self.remember(state.restamped)
        return known

    def make(self, run: RunOptions, started: float) -> Record:
        """Read the documents and write the page; return its record."""
        made = self.content.make(run)
        written = self._publish(made)
        return Record(
            unit=self.unit.name,
            shard=self.unit.name,
            key=self.unit.key,
            inputs=tuple(made.inputs),
            rows=made.rows,
            counts=dict(made.counts),
            info={"written": msgspec.to_builtins(written), "notes": list(made.notes)},
            seconds=round(time.monotonic() - started, 4),
            finished=time.time(),
        )

    def remember(self, records: Sequence[Record], cpu: float = 0.0) -> str | None:
        """Write records to the journal, and the CPU-seconds of the page; return what a person should know if that cannot be."""
        journal, read = Journal(self.root, "report"), self.content.root
        try:
            sweep(journal.folder)
            origin = "" if read == self.root else resume.origin_of(self.root, read)
            writer = journal.start(self.params, (self.unit.name,), dolma_dask.__version__, origin)
            try:
                for record in records:
                    writer.add(record)
                writer.finish(0, cpu=cpu)
            finally:
                writer.close()
        except (OSError, StoreAccessError) as error:  # a dataset that may only be read has a page too
            return f"the same command will make the page again, because it cannot be recorded in {self.root}: {error}"
        return None

    def _is_as_written(self, record: Record) -> bool:
        written = msgspec.convert(record.info.get("written", []), list[InputRecord])
        urls = (json_url(self.target), self.target)
        return len(written) == 2 and all(
            is_same_file(one, url, files.stat(url)) for one, url in zip(written, urls, strict=True)
        )

    def _publish(self, made: Made) -> list[InputRecord]:
        """Write the JSON, then the page, each complete or not at all; return what was written."""
        written = []
        for url, content in ((json_url(self.target), made.json), (self.target, made.html.encode())):
            with publish(url) as out:
                out.write(content)
            info = files.stat(url)
            written.append(InputRecord(last_name(url), out.bytes, info.stamp if info else "", out.checksum))
        return written
