"""Texts to ids by a tokenizer of the ``tokenizers`` library, in pieces that bound memory, and ids of single documents found and replaced.

Memory: an `Encoding` takes 60 to 90 bytes per token, so a batch is encoded in pieces of about 256 KB of text (30 to 50 MB). A document larger than that is
cut where its ids stay the same (`dolma_dask.tokens.cuts`); one that cannot be cut is a piece of its own, and costs what the library needs: 120 to 160
bytes per byte of text while it is encoded.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from dolma_dask.errors import DataError, SchemaError
from dolma_dask.formats.ragged import check_lengths
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import string_parts
from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.cuts import Cutter
from dolma_dask.tokens.lean import Lean
from dolma_dask.tokens.spelled import AddedTokens

PIECE_BYTES = 1 << 18
_DOCUMENT_BYTES = 256  # an Encoding costs this much even without a token: bounds pieces of tiny documents


class Finding(Struct, frozen=True):
    """A document whose text is not what its tokens say without a word."""

    row: int  # of the batch
    kind: str  # see `dolma_dask.formats.findings`
    what: str  # for people: the tokens or characters


class Tokens(Struct, frozen=True):
    """Ids of a batch of documents, back to back."""

    ids: NDArray[np.integer[Any]]  # (n_tokens,) All documents in order, nothing between them
    lengths: NDArray[np.int32]  # (n_docs,) Tokens per document; an empty document has 0
    findings: tuple[Finding, ...] = ()  # documents that people should know of
    # (n_docs,) records that sequences are made of, by their numbers in the batch, sorted; None: one each, in order
    owners: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        total = int(self.lengths.sum(dtype=np.int64))
        if total != self.ids.size:
            raise DataError(
                f"lengths of {self.lengths.size} documents sum to {total}, but there are {self.ids.size} ids; make"
                " both from the same documents",
                documents=self.lengths.size,
                tokens=self.ids.size,
            )


def check_texts(texts: pa.LargeStringArray) -> None:
    """Refuse (`SchemaError`, `DataError`) what are no strings, or nulls among them."""
    if not isinstance(texts, pa.LargeStringArray | pa.StringArray):
        found = getattr(texts, "type", type(texts).__name__)
        raise SchemaError(
            f"texts are {found}, expected an Arrow array of large_string; cast the column", found=found
        )
    if texts.null_count:
        row = texts.is_null().index(True).as_py()
        raise DataError(
            f"text of row {row} of the batch is null, expected a string; fill or drop it", row=row
        )


def pieces_of(texts: pa.LargeStringArray, most: int = PIECE_BYTES) -> Iterator[tuple[int, int]]:
    """Cut a batch into row ranges of about `most` bytes; a larger document is a range of its own."""
    costs = np.cumsum(
        pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64) + _DOCUMENT_BYTES
    )
    start, done = 0, 0
    while start < len(costs):
        stop = max(start + 1, int(np.searchsorted(costs, done + most, side="right")))
        yield start, stop
        start, done = stop, int(costs[stop - 1])


_SHOWN = 60
"""Bytes of a text that an error shows."""


def encode_all(
    tokenizer: Tokenizer,
    texts: pa.LargeStringArray,
    dtype: np.dtype[Any],
    cutter: Cutter | None,
    rows: NDArray[np.int64] | None = None,
    lean: Lean | None = None,
) -> Tokens:
    """Encode texts, long ones in parts; `rows` are their numbers for messages, if they are not all of a batch, `lean` the tokenizer with fewer steps, if there is one."""
    parts, owners = cut_long(texts, cutter, tokenizer)
    if owners is not None:
        rows = owners if rows is None else rows[owners]
    lengths = np.zeros(len(parts), np.int64)
    pieces = [np.empty(0, dtype)]
    for start, stop in pieces_of(parts):
        ids = [encoding.ids for encoding in _encode_piece(tokenizer, parts, start, stop, rows, lean)]
        lengths[start:stop] = list(map(len, ids))
        pieces.append(np.fromiter(chain.from_iterable(ids), dtype, int(lengths[start:stop].sum())))
    if owners is not None:
        lengths = np.bincount(owners, lengths, len(texts)).astype(np.int64)
    return Tokens(np.concatenate(pieces), check_lengths(lengths))


def cut_long(
    texts: pa.LargeStringArray, cutter: Cutter | None, tokenizer: Tokenizer
) -> tuple[pa.LargeStringArray, NDArray[np.int64] | None]:
    """Cut texts of more than `PIECE_BYTES` where the ids stay the same; return the parts, and of which text each is, None if no text is cut."""
    if cutter is None:
        return texts, None
    offsets, data = string_parts(texts)
    cuts = {
        int(row): [
            int(offsets[row]) + at
            for at in cutter.cuts(data[offsets[row] : offsets[row + 1]], PIECE_BYTES, tokenizer)
        ]
        for row in np.flatnonzero(np.diff(offsets) > PIECE_BYTES)
    }
    if not any(cuts.values()):
        return texts, None
    bounds = np.sort(
        np.concatenate([offsets, *(np.array(found, np.int64) for found in cuts.values())]), kind="stable"
    )
    counts = np.ones(len(texts), np.int64)
    for row, found in cuts.items():
        counts[row] += len(found)
    parts = pa.Array.from_buffers(
        pa.large_string(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    return parts, np.repeat(np.arange(len(texts)), counts)


@kernel
def _find_added(ids, lengths, is_added, unknown, found):  # type: ignore[no-untyped-def]
    """See `find_added`."""
    end = 0
    for row in range(len(lengths)):
        begin, end, seen = end, end + lengths[row], 0
        for place in range(begin, end):
            token = ids[place]
            if is_added[token]:
                seen |= 2 if token == unknown else 1
        found[row] = seen


def find_added(
    ids: NDArray[np.integer[Any]], lengths: NDArray[np.int32], added: AddedTokens
) -> NDArray[np.uint8]:
    """Tell of documents (n,), whose ids stand back to back, which tokens they have that a text may spell out: 1 others than the unknown one, 2 that, 3 both."""
    found = np.empty(lengths.size, np.uint8)
    _find_added(ids, lengths, added.is_added, -1 if added.unknown is None else added.unknown, found)
    return found


def rows_with(tokens: Tokens, added: AddedTokens, texts: pa.LargeStringArray) -> NDArray[np.int64]:
    """Return the rows of documents that may spell tokens out, sorted: all whose ids hold one, unless it is the unknown token and not in the text."""
    found = find_added(tokens.ids, tokens.lengths, added)
    doubtful = np.flatnonzero(found == 2)
    if doubtful.size:
        is_spelled = pc.match_substring(texts.take(pa.array(doubtful)), added.unknown_name)
        found[doubtful[~is_spelled.to_numpy(zero_copy_only=False)]] = 0
    return np.flatnonzero(found)


def of_documents(tokens: Tokens, rows: NDArray[np.int64]) -> list[NDArray[np.integer[Any]]]:
    """Return the ids of some documents."""
    ends = np.cumsum(tokens.lengths, dtype=np.int64)
    return [tokens.ids[ends[row] - tokens.lengths[row] : ends[row]] for row in rows]


def replaced(
    tokens: Tokens, changed: Mapping[int, NDArray[np.integer[Any]]]
) -> tuple[NDArray[np.integer[Any]], NDArray[np.int32]]:
    """Return the ids and lengths with those of some documents replaced; rows ascend."""
    ends, lengths = np.cumsum(tokens.lengths, dtype=np.int64), tokens.lengths.astype(np.int64)
    parts, done = [], 0
    for row, ids in changed.items():
        parts += [tokens.ids[done : ends[row] - tokens.lengths[row]], ids]
        done, lengths[row] = int(ends[row]), ids.size
    return np.concatenate([*parts, tokens.ids[done:]]), check_lengths(lengths)


def _encode_piece(
    tokenizer: Tokenizer,
    texts: pa.LargeStringArray,
    start: int,
    stop: int,
    rows: NDArray[np.int64] | None = None,
    lean: Lean | None = None,
) -> list[Encoding]:
    piece = texts.slice(start, stop - start)
    try:
        if lean is not None:
            return lean.encode(tokenizer, piece.to_pylist())
        encodings: list[Encoding] = tokenizer.encode_batch_fast(piece.to_pylist(), add_special_tokens=False)
    except Exception as error:  # the library raises nothing more precise
        at, reason = _find_failure(tokenizer, piece, error)
        shortened = piece[at].as_buffer().to_pybytes()[:_SHOWN].decode(errors="replace")
        row = start + at if rows is None else int(rows[start + at])
        raise DataError(
            f"text of row {row} of the batch, {shortened!r}, cannot be encoded: {reason}; drop the row, or use a tokenizer"
            " that knows every character (byte fallback or an unknown token)",
            row=row,
        ) from error
    return encodings


def _find_failure(
    tokenizer: Tokenizer, piece: pa.LargeStringArray, error: Exception
) -> tuple[int, Exception]:
    for row, scalar in enumerate(piece):
        try:
            tokenizer.encode(scalar.as_py(), add_special_tokens=False)
        except Exception as failure:  # noqa: BLE001  the caller raises it with its row
            return row, failure
    return 0, error
