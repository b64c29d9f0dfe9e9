"""Sinks: what takes the kept documents of one shard and leaves files, several of them from one reading.

Below the verbs, so that `ragged` and `hdf5` write by themselves with the very sinks that a mix uses. Cost: none beyond their writers; rows are views.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dolma_dask.engine import Unit
from dolma_dask.io.records import FileRecord, InputRecord
from dolma_dask.journal import Record

Writer = TypeVar("Writer", bound=AbstractContextManager[Any])


@dataclass(frozen=True)
class Kept:
    """Documents that are kept, as they are written.

    Attributes
    ----------
    lines : pyarrow.LargeBinaryArray
        (n,) with their final newlines.
    source, identity, text : pyarrow.LargeStringArray
        (n,) of each.
    numbers : int64[n]
        Their rows in the shard.
    """

    lines: pa.LargeBinaryArray
    source: pa.LargeStringArray
    identity: pa.LargeStringArray
    text: pa.LargeStringArray
    numbers: npt.NDArray[np.int64]

    @property
    def batch(self) -> pa.RecordBatch:
        """The columns `id`, `source` and `text`."""
        return pa.record_batch({"id": self.identity, "source": self.source, "text": self.text})


@dataclass(frozen=True)
class ReadShard:
    """What is known of a shard once it is read, for the records of all that was made of it.

    Attributes
    ----------
    path : str
        Of the shard.
    inputs : tuple of InputRecord
        The files as they were read.
    counts : Mapping[str, float]
        What was counted on the way.
    unproved : tuple of str
        Attribute sets that no journal speaks of.
    ids_digest, content_digest : str
        Of the rows that the record speaks of.
    """

    path: str
    inputs: tuple[InputRecord, ...]
    counts: Mapping[str, float]
    unproved: tuple[str, ...] = ()
    ids_digest: str = ""
    content_digest: str = ""


class Sink(Protocol):
    """Takes the kept rows of one shard; its files appear on a clean exit, and not at all after an exception."""

    def __enter__(self) -> "Sink": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def take(self, rows: Kept) -> None:
        """Append rows."""
        ...


class WriterSink(Generic[Writer]):
    """What the sinks have in common that hand everything to one writer: its files appear on a clean exit.

    Parameters
    ----------
    writer : context manager
        Entered and left with the sink.
    """

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def __enter__(self) -> Self:
        self.writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.__exit__(kind, error, trace)


class RecordedSink(Sink, Protocol):
    """A sink that a journal speaks of."""

    def __enter__(self) -> "RecordedSink": ...

    def record(self, unit: Unit, read: ReadShard, bad: tuple[FileRecord, ...]) -> Record:
        """Return the record of what was written, after a clean exit; `bad` are the files of the quarantine."""
        ...
