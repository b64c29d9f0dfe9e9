"""Segments of token files: the documents that the tokens of each row come from. Pure rules, no files.

Beside a token file ``<file>`` lies ``_segments/<file>.parquet``, a row per segment in the order of the file's rows: what `trace`, `find` and `remove` look up.
A *row* of a token file is a document where the format has one entry per document (ragged arrays, Parquet, Megatron, datatrove, MDS, the Dolma toolkit's),
else a row of HDF5. A segment is a run of neighbouring tokens of one document in one row; what stands between and behind them is padding.

Token ``j`` of a segment (``0 <= j < size``) is token ``start + j`` of the document as it was encoded (special tokens around it count). In HDF5 rows it is the
input at position ``place + j``, unless it is the last of its run, and the label at ``place + j - 1``, unless ``place + j == first``: `first` is where the
run of tokens begins that the row was filled from (in rows of several documents one for each), of which the last token is a label alone. Where a
mode shows it too, it is the last input (Summarization, FIM, DPO). A row of DPO has two runs, that of the chosen answer before the rejected one, which both begin at 0, of channels of
their own; tokens of the second count on. Several sequences of one document (pairs of a dialogue) count on as well. In FIM a segment is a piece of a document as it was rearranged
(`start` is where it began there) with the special tokens that were put around its parts.

Files with shuffled rows have the segments of their own rows too, so that nobody has to know how they were shuffled.
"""

from collections.abc import Iterable

import pyarrow as pa

FOLDER = "_segments"
"""Folder beside token files, at the root of their output."""

SEGMENTS_SCHEMA = pa.schema(
    [
        pa.field("row", pa.int64(), nullable=False),  # of the token file, from 0
        pa.field("first", pa.int32(), nullable=False),  # position at which its run of tokens begins
        pa.field("place", pa.int32(), nullable=False),  # position of the segment's first token
        pa.field("size", pa.int32(), nullable=False),  # tokens
        pa.field("start", pa.int64(), nullable=False),  # first token, of those of the document
        pa.field("source", pa.dictionary(pa.int32(), pa.large_string())),  # null: documents have none
        pa.field("id", pa.large_string()),  # null: documents have none
        # path of the shard, relative to the root of the documents (``documents/en_00.jsonl.gz``), and the document's row in it
        pa.field("path", pa.dictionary(pa.int32(), pa.large_string()), nullable=False),
        pa.field("document", pa.int64(), nullable=False),
    ]
)
"""Columns of a file of segments."""


def segments_path(token_file: str) -> str:
    """Return the file of the segments of a token file, by the name of the file of its ids, both relative to the output."""
    return f"{FOLDER}/{token_file}.parquet"


def with_segments(prefixes: Iterable[str]) -> list[str]:
    """Return beginnings of the names of token files, and of the files of their segments."""
    return [name for prefix in prefixes for name in (prefix, f"{FOLDER}/{prefix}")]


def tokens_first(path: str) -> tuple[bool, str]:
    """Return the key of an order in which files are removed: no token file stays without its segments."""
    return path.startswith(f"{FOLDER}/"), path
