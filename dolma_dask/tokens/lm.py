"""LMData: documents as one stream of tokens, or each by itself, cut into rows that a language model predicts token by token.

Packed, documents are not kept apart in a row but by the token that ends them, which is predicted like any other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.formats.hdf5 import LM_FEATURES, RowCounts, TextCounts
from dolma_dask.tokens.engine import TokenEngine, Tokens
from dolma_dask.tokens.lm_documents import LmRecipe
from dolma_dask.tokens.lm_rows import check_short, make_rows, shorten, shorten_like_modelzoo
from dolma_dask.tokens.lm_specials import Specials
from dolma_dask.tokens.lm_text_of_rows import count_text
from dolma_dask.tokens.packing import Tail, Windows, count_document_rows, document_windows


@dataclass(frozen=True)
class LmData:
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
        """What happens to the last tokens if all documents are one stream; None if they are not."""
        return self.tail if self.packs else None

    def params(self) -> Mapping[str, Any]:
        """Return all that decides the rows of given documents."""
        recipe = self.recipe
        return {
            "mode": self.name,
            "tokenizer": recipe.engine.fingerprint,
            "specials": recipe.specials.to_json(),
            "cleaning": vars(recipe.cleaning),
            "cutting": vars(recipe.cutting),
            "skips_empty": recipe.skips_empty,
            "rows": {name: value for name, value in vars(self).items() if name != "recipe"},
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
