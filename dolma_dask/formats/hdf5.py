"""Content of an HDF5 token shard: one array ``data`` of int32, (rows, channels, max_seq_length), as Cerebras ModelZoo reads it.

A row is what a trainer takes at once: the ids, the mask of what counts for the loss, and the ids to predict. Each row is a chunk of its
own, deflated by HDF5's gzip filter: a loader that jumps inflates one row only, and no plug-in is needed to read it. ``n_examples`` is
what ModelZoo's iterable loader trusts, ``features`` in ``data_params.json`` what it takes for the names of the channels.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.findings import LOST, SPELLED

DATASET = "data"
"""Name of the array."""

ROW_DTYPE = np.dtype("<i4")
"""Type of ids, mask and labels."""

ROWS_ATTRIBUTE = "n_examples"
"""Attribute of the file with the number of its rows, int64."""

GZIP_LEVEL = 4
"""Level that the filter announces, as ModelZoo's; the chunks are deflated at `DEFLATE_LEVEL`."""

DEFLATE_LEVEL = 0
"""Level of isal: 1,270 MB of rows per CPU-second, and 18 % larger than zlib's level 4 at 146. Levels 1 and 2 save 14 % but are not to be trusted:
about one process in eight gives other (valid) bytes for some rows of 768 bytes, one in a hundred for rows of 24 kB; none of 210 did at level 0."""

PARAMS_NAME = "data_params.json"
"""Counts and parameters beside the files."""

MADE_OF = "made_of"
"""Name in the record of the sums of rows: checksums of the inputs as they were when the rows were made, of those that have lost documents since."""

MAX_ROWS_PER_FILE = 50_000
"""Default of the rows of one file."""

LM_FEATURES = ("input_ids", "attention_mask", "labels")
"""Channels of a language-modelling row. ModelZoo calls the loss mask ``attention_mask``; it never masks attention."""

VSL_FEATURES = (*LM_FEATURES, "attention_span", "position_ids")
"""Channels of a row in which several sequences stand: how many later positions of its sequence may attend to a token, and its place there."""

PREFERENCE_FEATURES = tuple(f"{answer}_{name}" for answer in ("chosen", "rejected") for name in LM_FEATURES)
"""Channels of a row with both answers of a preference."""

MAX_PARTITIONS, MAX_INDEX = 10**6, 10**5
"""Limit that the digits of a name set."""


def part_name(partition: int, index: int = 0) -> str:
    """Return the name of file `index` of the run of rows that a task writes; padded, so that the order of names is that of the rows.

    Raises `UsageError`: there are more files than the digits can number.
    """
    if not (0 <= partition < MAX_PARTITIONS and 0 <= index < MAX_INDEX):
        raise UsageError(
            f"file {index} of partition {partition} cannot be named; expected fewer than {MAX_PARTITIONS:,} partitions and {MAX_INDEX:,} files "
            "in each. Allow more rows per file: max_rows_per_file."
        )
    return f"part-{partition:06d}-{index:05d}.h5"


class RowShape(Struct, frozen=True):
    """The array of one file."""

    rows: int  # rows of the file, at least 1
    channels: int  # 3 for language modelling, 5 for several sequences in a row, 6 for preferences
    length: int  # tokens of a channel: max_seq_length

    @property
    def whole(self) -> tuple[int, int, int]:
        """Shape of the array."""
        return (self.rows, self.channels, self.length)

    @property
    def chunk(self) -> tuple[int, int, int]:
        """Shape of a chunk: one row."""
        return (1, self.channels, self.length)

    def check(self, rows: NDArray[np.int32], done: int) -> None:
        """Refuse (`DataError`) rows of another shape or type, or more of them than announced; `done` were written before."""
        if rows.dtype != ROW_DTYPE or rows.ndim != 3 or rows.shape[1:] != (self.channels, self.length):
            raise DataError(
                f"rows are {rows.dtype} of shape {rows.shape}; expected {ROW_DTYPE} of shape (n, {self.channels}, {self.length})."
            )
        if done + len(rows) > self.rows:
            raise DataError(f"{done + len(rows)} rows for a file of {self.rows}; expected no more than that.")


class RowCounts(Struct, frozen=True):
    """Counts of rows, taken as they were made."""

    rows: int = 0  # rows
    tokens: int = 0  # positions of the ids: rows x max_seq_length, twice of preferences
    # Positions of the ids that hold no token of a document. A text may hold the padding token itself, or end in it (GPT-2): such are
    # tokens.
    pad_tokens: int = 0
    loss_tokens: int = 0  # positions that count for the loss
    eos_tokens: int = 0  # positions of the ids, padding aside, that hold the end of a document
    # UTF-8 bytes and code points of the rows' ids as text, padding and special tokens included
    detokenized_bytes: int = 0
    detokenized_chars: int = 0
    removed_tokens: int = 0  # tokens that were taken out of rows which had become too long (FIM)

    @classmethod
    def of(cls, counts: NDArray[np.int64], positions: int) -> "RowCounts":
        """Return the sums of what was counted in each row (n_rows, 5 or 6): all but rows and their `positions`."""
        return cls(len(counts), len(counts) * positions, *counts.sum(axis=0).tolist())

    def __add__(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


class TextCounts(Struct, frozen=True):
    """Counts of documents, taken as they were tokenized."""

    documents: int = 0  # documents that were read
    empty: int = 0  # documents that gave no row of their own
    # code points and UTF-8 bytes of the texts
    raw_chars: int = 0
    raw_bytes: int = 0
    # the same after repair and detokenizing
    normalized_chars: int = 0
    normalized_bytes: int = 0
    spelled: int = 0  # documents that spell special tokens out, which became text
    lossy: int = 0  # documents with characters that the tokenizer drops

    def __add__(self, other: "TextCounts") -> "TextCounts":
        return TextCounts(**{name: value + getattr(other, name) for name, value in asdict(self).items()})


def data_params(
    features: Sequence[str],
    eos_id: int | None,
    pad_id: int,
    vocab_size: int,
    texts: TextCounts,
    rows: RowCounts,
    sections: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the content of ``data_params.json``; keys as ModelZoo and its documentation have them, counts of what was written.

    `sections` are parameters of the run: ``setup``, ``processing``, ``dataset``. No paths and no secrets.
    """
    return {
        **{name: dict(section) for name, section in sections.items()},
        "features": list(features),
        "post-process": {
            "average_bytes_per_sequence": _average(texts.raw_bytes, rows.rows),
            "average_chars_per_sequence": _average(texts.raw_chars, rows.rows),
            "discarded_files": texts.empty,
            "eos_id": eos_id,
            "loss_valid_tokens": rows.loss_tokens,
            "n_examples": rows.rows,
            "non_pad_tokens": rows.tokens - rows.pad_tokens,
            "normalized_bytes_count": texts.normalized_bytes,
            "normalized_chars_count": texts.normalized_chars,
            "num_masked_tokens": rows.tokens - rows.loss_tokens,
            "num_pad_tokens": rows.pad_tokens,
            "num_tokens": rows.tokens,
            "pad_id": pad_id,
            "processed_files": texts.documents,
            "raw_bytes_count": texts.raw_bytes,
            "raw_chars_count": texts.raw_chars,
            "successful_files": texts.documents - texts.empty,
            **{name: count for name, count in ((SPELLED, texts.spelled), (LOST, texts.lossy)) if count},
            "vocab_size": vocab_size,
        },
        "h5_dataset_stats": {
            "detokenized_bytes": rows.detokenized_bytes,
            "detokenized_chars": rows.detokenized_chars,
            "loss_valid_tokens": rows.loss_tokens,
            "non_pad_tokens": rows.tokens - rows.pad_tokens - rows.eos_tokens,
            "num_sequences": rows.rows,
            "num_tokens": rows.tokens,
        },
    }


def _average(total: int, rows: int) -> int:
    return ceil(total / rows) if rows else 0
