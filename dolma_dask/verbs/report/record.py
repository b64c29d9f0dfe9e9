"""The memory of `report`: which page was made of which files, so that the same command does nothing while nothing has changed.

A page is a unit of the journal of the dataset that it shows, known by its place as seen from there. Its key is a digest of what the journals and
the listing put on the page, of the options and of `VERSION`; its inputs are the documents and attributes that were read and the files of
quarantined records. So a journal that is merged, or a copy elsewhere, makes no new page, and whatever the page would tell otherwise does. The page
and the JSON beside it have to be as they were written.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec

import dolma_dask
from dolma_dask.engine import Input, Task, Unit, resume
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.publish import sweep
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import Journal, Record, is_same_file, work_key
from dolma_dask.verbs.report.tables import QuarantineFile

VERSION = 1
"""Raised whenever a page tells something else of the same documents and journals, or looks otherwise."""

VERB = "report"


@dataclass(frozen=True)
class Page:
    """A page as its journal knows it.

    Attributes
    ----------
    root : str
        Of the dataset that it shows; the journal is there.
    target : str
        URL of the page.
    content : str
        URL of the JSON beside it.
    origin : str
        Root of the dataset whose documents were read.
    decides : Mapping
        What decides its bytes, besides the files that are read.
    inputs : sequence of Input
        Documents and attributes.
    quarantine : sequence of QuarantineFile
        Where records were set aside.
    params : Mapping
        What was asked, for the journal.
    """

    root: str
    target: str
    content: str
    origin: str
    decides: Mapping[str, Any]
    inputs: Sequence[Input]
    quarantine: Sequence[QuarantineFile] = ()
    params: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def unit(self) -> Unit:
        """The page, by its place relative to the dataset where both are local: the same after both were moved."""
        name = self.target
        if files.is_local(self.target) and files.is_local(self.root):
            name = os.path.relpath(files.local_path(self.target), files.local_path(self.root))
        return Unit(name, work_key(VERB, VERSION, self.decides))

    def done_before(self, overwrite: bool, dry_run: bool) -> Record | None:
        """Return the record of the page if it is as this call would make it; remember new time stamps of what it was made of."""
        unit = self.unit
        known = Journal(self.root, VERB).records.get(unit.name)
        if overwrite or known is None or known.key != unit.key or not self._is_as_written(known):
            return None
        task = Task(unit.name, (unit,), (*self.inputs, *self._aside()))
        state = resume.look_back_at(self.root, VERB, [task])
        if state.restamped and not dry_run:
            self.remember(state.restamped)
        return state.finished.get(unit.name)

    def remember(self, records: Sequence[Record]) -> str | None:
        """Note how the page was made; return what a person should know if that cannot be."""
        try:
            self._write(Journal(self.root, VERB), records)
        except OSError as error:  # a dataset that may be read alone has a page too
            return f"the same command will make the page again, because it cannot be noted in {self.root}: {error}"
        return None

    def record(
        self,
        written: Sequence[InputRecord],
        read: Sequence[InputRecord],
        rows: int,
        counts: dict[str, float],
        notes: Sequence[str],
        seconds: float,
    ) -> Record:
        """Return the record of the page, which has just been written.

        Parameters
        ----------
        written : sequence of InputRecord
            The JSON and the page.
        read : sequence of InputRecord
            Documents and attributes as they were read.
        rows : int
            Documents that were looked at.
        counts : dict
            For the summary.
        notes : sequence of str
            What the pass over the documents has told.
        seconds : float
            Wall seconds of the work.
        """
        unit = self.unit
        aside = (
            InputRecord(item.info.path, item.info.bytes, item.info.stamp, files.checksum(item.url))
            for item in self._aside()
        )
        return Record(
            unit=unit.name,
            shard=unit.name,
            key=unit.key,
            inputs=(*read, *aside),
            rows=rows,
            counts=counts,
            info={"written": msgspec.to_builtins(written), "notes": list(notes)},
            seconds=round(seconds, 4),
            finished=time.time(),
        )

    def _aside(self) -> list[Input]:
        """Return the files of quarantined records, which may be of several datasets."""
        return [
            Input(
                file.url, FileInfo(f"quarantine:{number}/{file.info.path}", file.info.bytes, file.info.stamp)
            )
            for number, file in enumerate(self.quarantine)
        ]

    def _is_as_written(self, record: Record) -> bool:
        written = msgspec.convert(record.info.get("written", []), list[InputRecord])
        return len(written) == 2 and all(
            is_same_file(one, url, files.stat(url))
            for one, url in zip(written, (self.content, self.target), strict=True)
        )

    def _write(self, journal: Journal, records: Sequence[Record]) -> None:
        sweep(journal.folder)
        writer = journal.start(self.params, (self.unit.name,), dolma_dask.__version__, self._origin())
        try:
            for record in records:
                writer.add(record)
            writer.finish(0)
        finally:
            writer.close()

    def _origin(self) -> str:
        """Return where the documents are that were read, as seen from the journal; empty if beside it."""
        return "" if self.origin == self.root else resume.origin_of(self.root, self.origin)
