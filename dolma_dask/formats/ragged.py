"""Ragged token shards: names, the type of ids, lengths. Pure rules, no files.

A token shard is a pair of real ``.npy`` files in a flat folder: ``<stem>.data.npy`` holds the ids of all
documents back to back, ``<stem>.len.npy`` one int32 per document. Nothing stands between two documents. Any tool
that reads the pairs of pre-tokenize reads ours. Beside them lies ``<stem>.json`` (`ragged_record`), which such
tools ignore. ``data.npy`` appears last and is therefore the mark that a shard is complete.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dolma_dask.errors import DataError, UsageError

LENGTH_DTYPE = np.dtype("<i4")
MAX_LENGTH = 2**31 - 1

_ID_DTYPES = (np.dtype("<i2"), np.dtype("<u2"), np.dtype("<u4"))
_NUMBERED = re.compile(r"(?P<name>.+)\.(?P<index>\d+)-of-(?P<count>\d+)", re.DOTALL)
_JSON_SUFFIX = re.compile(r"\.(json|jsonl|ndjson)(\.(gz|zst|bz2|xz))?$")


def token_dtype(max_id: int) -> np.dtype[Any]:
    """Return the smallest type of the format that holds every id up to `max_id`: ``<i2`` up to 32,767, ``<u2`` up to 65,535, else ``<u4``.

    int16 comes first because the original tool writes nothing else: a vocabulary that fits gives the same bytes.
    Above 32,767 the original wraps to negative ids without a word; here the type grows instead.

    Raises `UsageError`: ``max_id`` is negative or needs more than 32 bits.
    """
    for dtype in _ID_DTYPES:
        if 0 <= max_id <= np.iinfo(dtype).max:
            return dtype
    raise UsageError(
        f"largest token id is {max_id}, expected 0 to {2**32 - 1}; check the vocabulary", max_id=max_id
    )


def check_ids(ids: NDArray[np.integer[Any]], max_id: int, *, where: str) -> int | None:
    """Refuse ids that are outside of the vocabulary, before a cast could wrap them; return the largest that occurs.

    Raises `DataError`: an id is negative or above ``max_id``; the message names the position and the file `where`.
    """
    if ids.size == 0:
        return None
    largest = int(ids.max())
    smallest = int(ids.min()) if ids.dtype.kind == "i" else 0
    if smallest < 0 or largest > max_id:
        position = int(np.flatnonzero((ids < 0) | (ids > max_id))[0])
        raise DataError(
            f"{where}: token {position} of the batch has id {int(ids[position])}, expected 0 to {max_id} (the"
            " vocabulary with added tokens); write with the tokenizer that made the ids",
            position=position,
            id=int(ids[position]),
            max_id=max_id,
        )
    return largest


def check_lengths(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Cast document lengths to the int32 of the format, or say which one does not fit.

    Raises `DataError`: a length is negative or above 2,147,483,647.
    """
    if lengths.size and (int(lengths.max()) > MAX_LENGTH or int(lengths.min()) < 0):
        row = int(np.flatnonzero((lengths > MAX_LENGTH) | (lengths < 0))[0])
        raise DataError(
            f"document {row} of the batch has {int(lengths[row])} tokens, expected 0 to {MAX_LENGTH} (lengths are"
            " int32); split or drop the document",
            row=row,
            tokens=int(lengths[row]),
        )
    return lengths.astype(LENGTH_DTYPE, copy=False)


@dataclass(frozen=True)
class RaggedNames:
    """The three file names of one token shard."""

    stem: str  # what the three share, such as ``wiki.00003-of-00040``

    @property
    def data(self) -> str:
        """Name of the ids; the shard exists once this file does."""
        return f"{self.stem}.data.npy"

    @property
    def lengths(self) -> str:
        """Name of the document lengths."""
        return f"{self.stem}.len.npy"

    @property
    def sidecar(self) -> str:
        """Name of the record of origin."""
        return f"{self.stem}.json"

    @property
    def numbered(self) -> tuple[str, int, int] | None:
        """``(name, index, count)`` of a stem ``name.index-of-count``, else None."""
        match = _NUMBERED.fullmatch(self.stem)
        return (match["name"], int(match["index"]), int(match["count"])) if match else None


def ragged_names(sources: Sequence[str], dataset: str) -> list[RaggedNames]:
    """Name the token shards of a dataset, one for each of its sorted source paths.

    Sources that already are numbered parts, as C4's ``c4-train.00000-of-01024.json.gz``, keep their names, so
    that a partial download does not renumber them (the original tool does). That holds for all sources or for
    none: as soon as one has another name, or two would collide in the flat folder, all become
    ``<dataset>.<index>-of-<count>``.

    Raises `UsageError`: ``dataset`` is not a plain file name.
    """
    own = [_JSON_SUFFIX.sub("", PurePosixPath(source).name) for source in sources]
    if all(_NUMBERED.fullmatch(stem) for stem in own) and len(set(own)) == len(own):
        return [RaggedNames(stem) for stem in own]
    if not dataset or "/" in dataset or "\0" in dataset or dataset.startswith("."):
        raise UsageError(
            f"dataset name {dataset!r} cannot begin a file name; expected a plain word such as 'wiki'",
            dataset=dataset,
        )
    count = len(sources)
    return [RaggedNames(f"{dataset}.{index:05d}-of-{count:05d}") for index in range(count)]
