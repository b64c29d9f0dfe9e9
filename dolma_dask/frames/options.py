"""Options of the functions that write dataframes and bags."""

from dataclasses import dataclass
from typing import Annotated, Any

from dolma_dask.io.quarantine import MAX_BAD_FRACTION, OnBadRecord, RecordPolicy
from dolma_dask.io.stream import MAX_RECORD_BYTES
from dolma_dask.options.base import Opt, Options
from dolma_dask.options.groups import same


@dataclass(frozen=True, kw_only=True)
class CollectionOptions(Options):
    """Options for computing and writing a collection, and for rows that are bad."""

    unrecorded = frozenset(
        {"overwrite", "compute", "scheduler", "progress", "on_bad_record", "max_record_bytes"}
    )

    overwrite: Annotated[
        bool,
        Opt("Replace files of another verb or call, and remove those that this call does not make."),
    ] = False
    compute: Annotated[bool, Opt("False: return the task that does it, whose result is the summary.")] = True
    scheduler: Annotated[
        str | None,
        Opt(
            'For `dask.compute`: "threads", "synchronous", "processes"; by default the active client, else threads.',
            convert=same,
        ),
    ] = None
    progress: Annotated[
        bool, Opt("Show a progress bar; on a cluster its dashboard shows more.", convert=bool)
    ] = True
    on_bad_record: Annotated[
        OnBadRecord,
        Opt(
            "Fail at a row that is no document (an id, text or source is null, the metadata are no object), or set it aside."
        ),
    ] = "fail"
    max_record_bytes: Annotated[
        int,
        Opt("Longer rows are bad.", min=1, expected="a whole number of bytes, 1 or more"),
    ] = MAX_RECORD_BYTES

    @property
    def policy(self) -> RecordPolicy:
        """The same as readers and the quarantine take it."""
        return RecordPolicy(self.on_bad_record, max_record_bytes=self.max_record_bytes)


@dataclass(frozen=True, kw_only=True)
class WriteOptions(CollectionOptions):
    """`CollectionOptions`, and what is left out; for functions that write documents or their tokens."""

    unrecorded = frozenset({"max_bad_fraction"})

    source: Annotated[str | None, Opt("Source of the rows that have none.")] = None
    max_bad_fraction: Annotated[
        float,
        Opt(
            "Share of rows that may be set aside.",
            min=0,
            max=1,
            expected="a share of rows, from 0 to 1 (0.01 is one in a hundred)",
        ),
    ] = MAX_BAD_FRACTION

    @property
    def policy(self) -> RecordPolicy:
        """The same as readers and the quarantine take it."""
        return RecordPolicy(self.on_bad_record, self.max_bad_fraction, self.max_record_bytes)


def frame_of(columns: str) -> Opt:
    """Return the dataframe or bag that is written, as an argument; `columns` tells what it has to have."""
    return Opt(columns, kind="dask.dataframe.DataFrame or dask.bag.Bag", convert=same)


Texts = Annotated[
    Any, frame_of("Columns (or keys of the dicts) ``id text source``, strings; others are not read.")
]
"""A dataframe or bag of which the texts are tokenized."""
