"""LMData: documents as one stream of tokens, or each by itself, cut into rows that a language model predicts token by token.

Packed, documents are not kept apart in a row but by the token that ends them, which is predicted like any other. Rows (ids, loss mask, labels)
are counted while they are written, at 3 to 4 GB of int32 per CPU-second, and so is their text (``Tokenizer.decode``, special tokens included):
byte-level vocabularies (GPT-2 and most since) by a kernel from the bytes of each token, at 300 MB of text per CPU-second; others are decoded,
at 20. A row may begin or end inside a character: the broken bytes count as U+FFFD, which is what decoding shows.
"""

import random
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray
from tokenizers import decoders

from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import LM_FEATURES, RowCounts, TextCounts
from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.alphabet import shown_bytes
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.engine import TokenEngine, build
from dolma_dask.tokens.lm_documents import LmRecipe
from dolma_dask.tokens.packing import Int64s, Tail, Windows, count_document_rows, document_windows
from dolma_dask.tokens.specials import Specials

CHANNELS = len(LM_FEATURES)


@kernel
def _fill_rows(tokens, starts, sizes, pad, eos, inverted, rows):  # type: ignore[no-untyped-def]
    """Write every position of `rows`; return how many are padding, count for the loss, and are an end of document."""
    length = rows.shape[2]
    pads, losses, ends = 0, 0, 0
    seen, unseen = (0, 1) if inverted else (1, 0)
    for row in range(len(starts)):
        first, filled = starts[row], sizes[row] - 1
        for at in range(filled):
            token = np.int32(tokens[first + at])
            rows[row, 0, at] = token
            rows[row, 1, at] = seen
            rows[row, 2, at] = np.int32(tokens[first + at + 1])
            ends += token == eos
        for at in range(filled, length):
            rows[row, 0, at] = pad
            rows[row, 1, at] = unseen
            rows[row, 2, at] = pad
        pads += length - filled
        losses += filled
    return pads, losses, ends


def make_rows(
    tokens: NDArray[np.integer[Any]],
    windows: Windows,
    length: int,
    *,
    eos_id: int | None,
    pad_id: int,
    inverted_mask: bool = False,
) -> tuple[NDArray[np.int32], RowCounts]:
    """Make rows of ``[input_ids, loss mask, labels]``, (n_rows, 3, length), one for each window of the tokens (n_tokens,).

    End tokens are counted and predicted like any other; `pad_id` stands where a window is shorter, in ids and labels. An inverted mask is 1 where
    nothing is predicted.
    """
    rows = np.empty((len(windows), CHANNELS, length), np.int32)
    eos = -1 if eos_id is None else eos_id
    pads, losses, ends = _fill_rows(
        np.ascontiguousarray(tokens), windows.starts, windows.sizes, pad_id, eos, inverted_mask, rows
    )
    counts = RowCounts(
        rows=len(windows),
        tokens=len(windows) * length,
        pad_tokens=int(pads),
        loss_tokens=int(losses),
        eos_tokens=int(ends),
    )
    return rows, counts


MIN_SHORT = 2
"""Tokens of the shortest window that `short_seq_prob` leaves: one to see and one to predict."""

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_STEP = 0x9E3779B97F4A7C15


def shorten(windows: Windows, first_row: int, probability: float, seed: int, length: int) -> Windows:
    """Cut some windows to 2 to `length` - 1 tokens at random, so that a model also sees short rows; what is cut off is lost.

    Chance depends on the seed and the number of the row among all (the first of these is `first_row`), not on files or workers.
    """
    if not probability:
        return windows
    numbers = np.arange(first_row, first_row + len(windows), dtype=np.uint64)
    chance, size = _draw(numbers, 2 * seed), _draw(numbers, 2 * seed + 1)
    kept = MIN_SHORT + np.floor(size * (length - MIN_SHORT)).astype(np.int64)
    return _cut(windows, np.where(chance < probability, kept, length + 1))


def _draw(numbers: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """Return a number from 0 to 1 for each of `numbers`: the finalizer of splitmix64 (Steele, Lea, Flood 2014)."""
    mixed = numbers * np.uint64(_STEP) + np.uint64((seed * _MIX[1] + _STEP) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX[0])
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX[1])
    mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def shorten_like_modelzoo(
    windows: Windows, first_row: int, probability: float, seed: int, length: int
) -> Windows:
    """Do as `shorten`, with the chances of ModelZoo 2.2 run with one process: Python's generator, drawn from the first row on.

    Cost: 0.1 us for each row before `first_row`, which must be drawn too.
    """
    if not probability:
        return windows
    drawn = random.Random(seed)
    sizes = []
    for row in range(first_row + len(windows)):
        kept = drawn.randint(MIN_SHORT, length - 1) if drawn.random() < probability else length + 1
        if row >= first_row:
            sizes.append(kept)
    return _cut(windows, np.array(sizes, np.int64))


def _cut(windows: Windows, most: Int64s) -> Windows:
    return Windows(windows.starts, np.minimum(windows.sizes, most))


def check_short(probability: float, length: int) -> None:
    """Refuse (`UsageError`) a share of short rows that is none, or rows too short to be cut."""
    if not 0 <= probability <= 1:
        raise UsageError(f"short_seq_prob={probability!r}; expected a share of rows from 0 to 1.")
    if probability and length <= MIN_SHORT:
        raise UsageError(
            f"short_seq_prob={probability} with max_seq_length={length}; expected rows of more than {MIN_SHORT} tokens."
        )


_REPLACEMENT_BYTES = 3
"""UTF-8 bytes of U+FFFD."""


@lru_cache(maxsize=8)
def token_bytes(engine: TokenEngine) -> tuple[NDArray[np.uint8], Int64s] | None:
    """Return the bytes of all tokens of a byte-level vocabulary, back to back, and where each starts; None for another kind."""
    tokenizer, max_id, *_ = build(engine)
    if not isinstance(tokenizer.decoder, decoders.ByteLevel):
        return None
    shown = shown_bytes()
    texts = [b""] * (max_id + 1)
    for token, number in tokenizer.get_vocab(with_added_tokens=True).items():
        is_shown = all(char in shown for char in token)
        texts[number] = bytes(shown[char] for char in token) if is_shown else token.encode()
    starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), starts


@kernel
def _count_text(rows, data, starts):  # type: ignore[no-untyped-def]
    """Count bytes and code points of rows as lossy UTF-8: each longest beginning of a sequence that goes wrong is one U+FFFD."""
    total, chars = 0, 0
    for row in range(rows.shape[0]):
        need, low, high, have = 0, 0x80, 0xBF, 0
        for at in range(rows.shape[1]):
            token = rows[row, at]
            for position in range(starts[token], starts[token + 1]):
                byte = data[position]
                if need:
                    if low <= byte <= high:
                        need, low, high, have = need - 1, 0x80, 0xBF, have + 1
                        if need == 0:
                            total, chars = total + have, chars + 1
                        continue
                    total, chars, need = total + _REPLACEMENT_BYTES, chars + 1, 0
                low, high, have = 0x80, 0xBF, 1
                if byte < 0x80:
                    total, chars = total + 1, chars + 1
                elif 0xC2 <= byte <= 0xDF:
                    need = 1
                elif 0xE0 <= byte <= 0xEF:
                    need = 2
                    low = 0xA0 if byte == 0xE0 else 0x80
                    high = 0x9F if byte == 0xED else 0xBF
                elif 0xF0 <= byte <= 0xF4:
                    need = 3
                    low = 0x90 if byte == 0xF0 else 0x80
                    high = 0x8F if byte == 0xF4 else 0xBF
                else:
                    total, chars = total + _REPLACEMENT_BYTES, chars + 1
        if need:
            total, chars = total + _REPLACEMENT_BYTES, chars + 1
    return total, chars


def count_text(engine: TokenEngine, ids: NDArray[np.int32]) -> tuple[int, int]:
    """Return UTF-8 bytes and code points of rows of ids (n_rows, length) as text, each decoded by itself, padding included."""
    table = token_bytes(engine)
    if table is None:
        texts = build(engine).tokenizer.decode_batch(ids.tolist(), skip_special_tokens=False)
        return sum(len(text.encode()) for text in texts), sum(map(len, texts))
    total, chars = _count_text(ids, *table)
    return int(total), int(chars)


class LmData(Struct, frozen=True):
    """The mode; see `dolma_dask.tokens.modes.Mode`."""

    name: ClassVar[str] = "LMData"
    features: ClassVar[tuple[str, ...]] = LM_FEATURES
    reads: ClassVar[tuple[str, ...]] = ("text",)

    recipe: LmRecipe  # how documents become ids
    length: int = 2048  # max_seq_length
    packs: bool = True  # whether all documents are one stream
    tail: Tail = "pad"  # what happens to the last tokens of the stream
    least: int = 10  # min_sequence_len: of documents by themselves, windows of fewer tokens are left out
    short_seq_prob: float = 0.0  # share of rows cut at random
    seed: int = 0  # of that chance
    inverted_mask: bool = False  # 1 where nothing is predicted
    like_modelzoo: bool = False  # chances of `short_seq_prob` are those of ModelZoo 2.2 run with one process

    def __post_init__(self) -> None:
        if self.length < 1:
            raise UsageError(f"max_seq_length={self.length}; expected a number of tokens from 1 on.")
        if self.least < 0:
            raise UsageError(f"min_sequence_len={self.least}; expected a number of tokens from 0 on.")
        if not 0 <= self.seed < 2**63:
            raise UsageError(f"seed={self.seed}; expected a whole number from 0 on.")
        check_short(self.short_seq_prob, self.length)

    @property
    def engine(self) -> TokenEngine:
        """The tokenizer."""
        return self.recipe.engine

    @property
    def specials(self) -> Specials:
        """End of a document, and padding."""
        return self.recipe.specials

    @property
    def stream_tail(self) -> Tail | None:
        """Treatment of the last tokens if all documents are one stream; None if they are not."""
        return self.tail if self.packs else None

    def params(self) -> Mapping[str, Any]:
        """Return all that decides the rows of given documents."""
        recipe = self.recipe
        return {
            "mode": self.name,
            **recipe.engine.params(),
            "specials": asdict(recipe.specials),
            "cleaning": recipe.cleaning.params(),
            "cutting": asdict(recipe.cutting),
            "skips_empty": recipe.skips_empty,
            "rows": {name: value for name, value in asdict(self).items() if name != "recipe"},
        }

    def encode(self, batch: pa.RecordBatch) -> tuple[Tokens, TextCounts]:
        """Return a sequence of ids per document."""
        tokens, counts = self.recipe.encode(batch.column("text"))
        if self.packs:
            return tokens, counts
        empty = np.count_nonzero(count_document_rows(tokens.lengths, self.length, self.least) == 0)
        return tokens, replace(counts, empty=int(empty))

    def windows(self, lengths: NDArray[np.int32]) -> Windows:
        """Return the rows of documents that are no stream."""
        return document_windows(lengths, self.length, self.least)

    def make(
        self, tokens: NDArray[np.int32], windows: Windows, first_row: int
    ) -> tuple[NDArray[np.int32], RowCounts]:
        """Return rows, and what was counted in them."""
        cut = shorten_like_modelzoo if self.like_modelzoo else shorten
        windows = cut(windows, first_row, self.short_seq_prob, self.seed, self.length)
        specials = self.specials
        rows, counts = make_rows(
            tokens,
            windows,
            self.length,
            eos_id=specials.eos_id,
            pad_id=specials.pad_id,
            inverted_mask=self.inverted_mask,
        )
        text_bytes, chars = count_text(self.engine, rows[:, 0])
        return rows, replace(counts, detokenized_bytes=text_bytes, detokenized_chars=chars)
