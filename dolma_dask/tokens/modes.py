"""Plug for the modes of `hdf5`: how documents become sequences of ids, and sequences become rows.

Work goes in two passes. The first encodes each shard once: ids back to back, and their lengths. Between them only sums are looked at: how many
tokens (of a stream) or rows (of documents by themselves) each shard has. The second makes the rows of a file from the ids of the shards
that they come from. A mode says what happens in either pass; files, workers and resuming are not its business.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import RowCounts, TextCounts
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.lm import LmData
from dolma_dask.tokens.packing import Tail, Windows
from dolma_dask.tokens.specials import Specials


class Mode(Protocol):
    """A mode with its options; frozen and picklable."""

    @property
    def name(self) -> str: ...  # for users
    @property
    def features(self) -> tuple[str, ...]: ...  # names of the channels of a row
    @property
    def reads(self) -> tuple[str, ...]: ...  # columns of documents
    @property
    def length(self) -> int: ...  # tokens of a channel
    @property
    def engine(self) -> TokenEngine: ...
    @property
    def specials(self) -> Specials: ...
    @property
    def stream_tail(
        self,
    ) -> Tail | None: ...  # treatment of the last tokens of one stream; None: rows belong to documents

    def params(self) -> Mapping[str, Any]:
        """Return all that decides the rows of given documents, JSON-able."""
        ...

    def encode(self, batch: pa.RecordBatch) -> tuple[Tokens, TextCounts]:
        """First pass: return the sequences of a batch of documents, the same number for each, and what was counted."""
        ...

    def windows(self, lengths: NDArray[np.int32]) -> Windows:
        """Return the rows of the sequences of a shard, if `stream_tail` is None: sorted, a row from neighbouring ids."""
        ...

    def make(
        self, tokens: NDArray[np.int32], windows: Windows, first_row: int
    ) -> tuple[NDArray[np.int32], RowCounts]:
        """Second pass: return rows, (n, channels, length), and what was counted in them; `first_row` is the number of the first among all."""
        ...


MODES: Mapping[str, type[Mode]] = {LmData.name: LmData}
"""The modes that there are."""

ANNOUNCED = ("Summarization", "FIM", "LMData_VSL", "Summarization_VSL", "DPO")
"""Modes of ModelZoo that are still to come."""


def check_mode(name: str) -> None:
    """Refuse a mode that there is not.

    Raises `UsageError`: it is unknown, or not built yet.
    """
    if name in MODES:
        return
    state = "is not there yet" if name in ANNOUNCED else "is unknown"
    raise UsageError(f"mode {name!r} {state}; expected one of {', '.join(MODES)}.")
