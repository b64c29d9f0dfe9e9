"""Formats of files of token ids, by the trainers that read them: names, types of ids, and indexes. Pure rules, no files.

All have the ids of all documents of a shard back to back, or a row per document. They differ in what stands beside the ids:

- numpy: the ragged pair of `dolma_dask.formats.ragged`, lengths beside ids.
- parquet: a row per document: ``id``, ``input_ids``, ``length``.
- dolma: the Dolma toolkit's ``tokens``, for OLMo: ids without a header in a file called ``.npy``, and ``.csv.gz`` with start, end, id, source file and
  line (from 1) of each document; no header, lines end in CR LF.
- megatron: Megatron-LM's ``IndexedDataset``, for NeMo and GPT-NeoX too: ``.bin`` with ids, ``.idx`` with a length and a place for each sequence. A
  document is one sequence.
- datatrove: ``.ds`` with ids, ``.ds.index`` with the end of each document in tokens, ``.ds.metadata`` with the tokenizer and the number of tokens.
- mds: MosaicML's streaming datasets, see `dolma_dask.formats.mds`.

Readers of dolma, megatron and datatrove cut windows out of the stream of ids, so that a token has to end each document; it is put there by default.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.formats.mds import INDEX
from dolma_dask.formats.ragged import token_dtype
from dolma_dask.text import compute as pc

FormatName = Literal["numpy", "parquet", "dolma", "megatron", "datatrove", "mds"]

Ids = NDArray[np.integer[Any]]


def _smallest(*dtypes: str, limits: tuple[int, ...] = ()) -> Callable[[int], np.dtype[Any]]:
    """Return the function from the largest id of a vocabulary to the first type that holds it; `limits` are stricter than the types."""
    choices = [np.dtype(one) for one in dtypes]

    def dtype_of(max_id: int) -> np.dtype[Any]:
        for number, dtype in enumerate(choices):
            limit = limits[number] if number < len(limits) else int(np.iinfo(dtype).max)
            if max_id <= limit:
                return dtype
        raise UsageError(
            f"largest token id is {max_id}, expected 0 to {limit}, which the format can hold; choose another format",
            max_id=max_id,
        )

    return dtype_of


class TokenFormat(Struct, frozen=True):
    """Files of one format, for each shard of documents."""

    data: str  # suffix of the file that appears last: a shard is there once this file is
    beside: tuple[str, ...]  # suffixes of the files that appear before it
    dtype: Callable[[int], np.dtype[Any]]  # type of ids, by the largest id of the vocabulary
    # the reader sees one stream of ids, so that an end token stands behind each document unless another is requested
    is_stream: bool = False
    columns: tuple[str, ...] = ("text",)  # of documents, that its writer takes
    index: str = ""  # name of the file that names those of all shards
    version: int = 2  # raised whenever other bytes are written for the same ids


SIDECAR = ".json"
"""Suffix of the record of origin; Parquet has it in its footer."""

FORMATS: dict[FormatName, TokenFormat] = {
    "numpy": TokenFormat(".data.npy", (".len.npy", SIDECAR), token_dtype),
    "parquet": TokenFormat(".parquet", (), _smallest("<i4", "<u4"), columns=("text", "id")),
    "dolma": TokenFormat(
        ".npy", (".csv.gz", SIDECAR), _smallest("<u2", "<u4"), is_stream=True, columns=("text", "id")
    ),
    # Megatron takes int32 from a vocabulary of 65,500 on
    "megatron": TokenFormat(
        ".bin", (".idx", SIDECAR), _smallest("<u2", "<i4", limits=(65_498,)), is_stream=True
    ),
    "datatrove": TokenFormat(
        ".ds", (".ds.index", ".ds.metadata", SIDECAR), _smallest("<u2", "<u4"), is_stream=True
    ),
    "mds": TokenFormat(".mds", (SIDECAR,), _smallest("<i4"), columns=("text", "id"), index=INDEX),
}
assert FORMATS.keys() == set(get_args(FormatName))


def part_of(suffix: str) -> str:
    """Return the name of a file of a shard in the record of origin: ``data``, ``len``, ``bin``."""
    return suffix.removeprefix(".").removesuffix(".npy")


# dolma


def dolma_rows(
    ids: pa.Array,
    lengths: NDArray[np.int32],
    start: int,
    source: str | pa.LargeStringArray,
    rows: NDArray[np.int64],
) -> pa.LargeStringArray:
    """Return the lines of documents in ``.csv.gz``: `start` is the first token, `rows` are the lines of `source`, one file or that of each, from 0."""
    ends = start + np.cumsum(lengths, dtype=np.int64)
    columns = (_as_text(ends - lengths), _as_text(ends), quoted(ids.cast(pa.large_string())))
    paths = pa.array([source], pa.large_string()) if isinstance(source, str) else source
    path = quoted(paths)[0] if isinstance(source, str) else quoted(paths)
    end = pa.scalar("\r\n", pa.large_string())
    fields = pc.binary_join_element_wise(
        *columns, path, _as_text(rows + 1), pa.scalar(",", pa.large_string())
    )
    return pc.binary_join_element_wise(fields, end, pa.scalar("", pa.large_string()))


def _as_text(numbers: NDArray[np.int64]) -> pa.LargeStringArray:
    return pa.array(numbers).cast(pa.large_string())


def quoted(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Put values that hold a separator into quotes, as csv.writer does."""
    is_special = pc.match_substring_regex(texts, '[,"\r\n]')
    if not pc.any(is_special, min_count=0).as_py():
        return texts
    doubled = pc.replace_substring(texts, '"', '""')
    quote, nothing = (pa.scalar(text, pa.large_string()) for text in ('"', ""))
    return pc.if_else(is_special, pc.binary_join_element_wise(quote, doubled, quote, nothing), texts)


# megatron

_MEGATRON_MAGIC, _MEGATRON_VERSION = b"MMIDIDX\0\0", 1
_MEGATRON_CODES = {"uint16": 8, "int32": 4}


def megatron_index(
    dtype: np.dtype[Any], documents: int, lengths: Callable[[], Iterable[NDArray[np.int32]]]
) -> Iterator[bytes | Ids]:
    """Yield the content of ``.idx``: type, counts, lengths, first bytes, and where documents begin and end among sequences; `lengths` gives them anew in pieces."""
    yield _MEGATRON_MAGIC + struct.pack("<QB", _MEGATRON_VERSION, _MEGATRON_CODES[dtype.name])
    yield struct.pack("<QQ", documents, documents + 1)
    yield from lengths()
    for piece, ends in _with_ends(lengths()):
        yield ((ends - piece) * dtype.itemsize).astype("<i8", copy=False)
    yield np.arange(documents + 1, dtype="<i8")


def _with_ends(
    pieces: Iterable[NDArray[np.int32]],
) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int64]]]:
    done = 0
    for piece in pieces:
        ends = done + np.cumsum(piece, dtype=np.int64)
        yield piece, ends
        done = int(ends[-1]) if ends.size else done


# datatrove


def datatrove_index(lengths: Iterable[NDArray[np.int32]]) -> Iterator[Ids]:
    """Yield the content of ``.ds.index``: the end of each document in tokens."""
    for _, ends in _with_ends(lengths):
        yield ends.astype("<u8")


def datatrove_metadata(tokenizer: str, dtype: np.dtype[Any], tokens: int) -> bytes:
    """Return the content of ``.ds.metadata``: tokenizer and bytes of a token, number of tokens, and this in brief."""
    return f"{tokenizer}|{dtype.itemsize}\n{tokens}\n{_in_brief(tokens)}".encode()


def _in_brief(tokens: int) -> str:
    """Return a number of tokens in three digits, such as ``1.23 MT``."""
    exponent = len(str(tokens)) - 1
    thousands, digits = divmod(exponent, 3)
    return f"{tokens / 1000**thousands:.{2 - digits}f} {('', 'k', 'M', 'G', 'T', 'P')[thousands]}T"
