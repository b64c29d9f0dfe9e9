"""Documents to token ids for language modelling: cleaned, cut if requested, encoded, with what stands around each.

Encoding is nearly all of the cost (3 to 4 MB of text per CPU-second); what is added here takes 1 to 2 ns per token.
"""

from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace
from numpy.typing import NDArray

from dolma_dask.formats.documents import text_bytes
from dolma_dask.formats.findings import LOST, SPELLED, TOO_LONG, TOO_SHORT
from dolma_dask.formats.hdf5 import TextCounts
from dolma_dask.formats.ragged import check_lengths
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import string_parts
from dolma_dask.text.kernels import kernel
from dolma_dask.tokens.cleaning import Cleaning
from dolma_dask.tokens.encoding import Finding, Tokens
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.shortening import short_documents
from dolma_dask.tokens.specials import Specials, surround

_SPACE = 32
_CONTINUES = 0x80
"""Bits 7 and 6 of a UTF-8 byte that begins no code point."""


class Cutting(Struct, frozen=True):
    """Cuts of texts before they are encoded, for tokenizers that are slow on long ones; ids at the cuts may differ."""

    chars: int | None = None  # code points after which the next space begins a piece; None: texts are not cut
    # the tokenizer's own beginning and end stand around the document, not around every piece
    drops_heads: bool = False
    # the first token of each further piece is dropped, whatever it is, as ModelZoo 2.2 does to have the same
    drops_first: bool = False


class LmRecipe(Struct, frozen=True):
    """Way from documents to ids; see `dolma_dask.tokens.modes.Recipe`."""

    reads: ClassVar[str] = "text"
    has_marks: ClassVar[bool] = False
    locked: ClassVar[float] = 0.0

    engine: TokenEngine  # the tokenizer
    specials: Specials  # what stands around a document
    cleaning: Cleaning = msgspec.field(default_factory=Cleaning)  # what happens to texts first
    cutting: Cutting = msgspec.field(default_factory=Cutting)  # whether they are cut
    skips_empty: bool = False  # documents without text are left out; else they are their end token alone

    def params(self) -> dict[str, Any]:
        """Return all that decides the ids of given texts."""
        return {
            **self.engine.params(),
            "specials": asdict(self.specials),
            "cleaning": self.cleaning.params(),
            "cutting": asdict(self.cutting),
            "skips_empty": self.skips_empty,
        }

    def value_bytes(self, texts: pa.LargeStringArray) -> NDArray[np.int64]:
        """Return the UTF-8 bytes of texts (n,)."""
        return np.diff(string_parts(texts)[0]).astype(np.int64)

    def encode(self, texts: pa.LargeStringArray) -> tuple[Tokens, TextCounts]:
        """Return the ids of documents, and what was counted."""
        rows = np.arange(len(texts))
        if self.skips_empty:
            kept = pc.greater(pc.binary_length(texts), 0)
            texts, rows = texts.filter(kept), rows[kept.to_numpy(zero_copy_only=False)]
        clean = self.cleaning.apply(texts)
        chars = _chars(texts)
        counts = TextCounts(
            documents=len(texts),
            raw_chars=chars,
            raw_bytes=text_bytes(texts),
            normalized_chars=chars if clean is texts else _chars(clean),
            normalized_bytes=text_bytes(clean),
        )
        tokens = self._end(self._cut(clean))
        if self.skips_empty:
            tokens = replace(tokens, owners=rows)
        found = tuple(replace(one, row=int(rows[one.row])) for one in tokens.findings)
        spelled, lossy = (sum(one.kind == kind for one in found) for kind in (SPELLED, LOST))
        return replace(tokens, findings=found), replace(counts, spelled=spelled, lossy=lossy)

    def _cut(self, texts: pa.LargeStringArray) -> Tokens:
        """Encode texts, in pieces if requested, with what the tokenizer puts around each."""
        specials, cutting = self.specials, self.cutting
        if cutting.chars is None:
            return surround(self.engine.encode(texts), specials.head, specials.tail)
        pieces, counts = cut_texts(texts, cutting.chars)
        tokens = self.engine.encode(pieces)
        if cutting.drops_heads:
            return surround(_joined(tokens, counts), specials.head, specials.tail)
        tokens = surround(tokens, specials.head, specials.tail)
        return _joined(_without_firsts(tokens, counts) if cutting.drops_first else tokens, counts)

    def _end(self, tokens: Tokens) -> Tokens:
        eos = self.specials.eos_id
        if eos is None or self.specials.tail[-1:] == (eos,):
            return tokens
        return surround(tokens, (), (eos,))


class SequenceRecipe(LmRecipe, frozen=True):
    """Way from documents to sequences that share rows with others."""

    length: int = 2048  # max_seq_length
    least: int = 10  # min_sequence_len: documents of fewer tokens are left out
    folds: bool = True  # longer documents are several sequences; else they are left out
    short_seq_prob: float = 0.0  # share of documents cut at random
    seed: int = 0  # of that chance

    def params(self) -> dict[str, Any]:
        """See `LmRecipe.params`."""
        own = {name: getattr(self, name) for name in ("least", "folds", "short_seq_prob", "seed")}
        return {**super().params(), "sequences": own}

    def encode(self, texts: pa.LargeStringArray) -> tuple[Tokens, TextCounts]:
        """Return the ids of documents, none of those that are left out, and what was counted."""
        tokens, counts = super().encode(texts)
        is_short = tokens.lengths < self.least
        is_long = (tokens.lengths > self.length + 1) & (not self.folds)
        kept = ~(is_short | is_long)
        if not kept.all():
            left_out = [
                Finding(int(row), kind, f"{tokens.lengths[row]} tokens, at {limit}")
                for kind, mask, limit in (
                    (TOO_SHORT, is_short, f"least {self.least}"),
                    (TOO_LONG, is_long, f"most {self.length + 1}"),
                )
                for row in np.flatnonzero(mask)
            ]
            ids = tokens.ids[np.repeat(kept, tokens.lengths)]
            lengths = np.where(kept, tokens.lengths, 0).astype(np.int32)
            tokens = Tokens(ids, lengths, (*tokens.findings, *left_out), tokens.owners)
        return short_documents(tokens, self.short_seq_prob, self.seed, self.length), counts


def _chars(texts: pa.LargeStringArray) -> int:
    return pc.sum(pc.utf8_length(texts)).as_py() or 0


@kernel
def _find_cuts(data, offsets, chars, counts, cuts):  # type: ignore[no-untyped-def]
    """Find where pieces end; return how many there are. The first ``len(cuts)`` ends are written."""
    total = 0
    for text in range(len(offsets) - 1):
        end, seen, pieces = offsets[text + 1], 0, 0
        for position in range(offsets[text], end):
            byte = data[position]
            if seen >= chars and byte == _SPACE:
                if total < len(cuts):
                    cuts[total] = position
                total, pieces, seen = total + 1, pieces + 1, 0
            seen += byte & 0xC0 != _CONTINUES
        if total < len(cuts):
            cuts[total] = end
        total += 1
        counts[text] = pieces + 1
    return total


def cut_texts(texts: pa.LargeStringArray, chars: int) -> tuple[pa.LargeStringArray, NDArray[np.int64]]:
    """Cut texts at the first space at or after every `chars` code points; the space begins the next piece.

    Returns the pieces, a view of the same bytes, and how many each text has (n_docs,), at least 1.
    """
    offsets, data = string_parts(texts)
    counts = np.empty(len(texts), np.int64)
    total = _find_cuts(data, offsets, chars, counts, np.empty(0, np.int64))
    ends = np.empty(total, np.int64)
    _find_cuts(data, offsets, chars, counts, ends)
    bounds = np.concatenate([offsets[:1], ends])
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), total, buffers), counts


def _joined(tokens: Tokens, counts: NDArray[np.int64]) -> Tokens:
    """Return documents from their pieces."""
    bounds = np.concatenate([[0], np.cumsum(tokens.lengths, dtype=np.int64)])
    stops = np.cumsum(counts)
    ends = bounds[np.concatenate([[0], stops])]
    found: dict[tuple[int, str], Finding] = {}  # the first of each kind of a document
    for one in tokens.findings:
        row = int(np.searchsorted(stops, one.row, side="right"))
        found.setdefault((row, one.kind), replace(one, row=row))
    return Tokens(tokens.ids, check_lengths(np.diff(ends)), tuple(found.values()))


def _without_firsts(tokens: Tokens, counts: NDArray[np.int64]) -> Tokens:
    """Drop the first token of every piece but the first of a document."""
    stops = np.cumsum(tokens.lengths, dtype=np.int64)
    is_first = np.zeros(len(stops), np.bool_)
    is_first[np.cumsum(counts) - counts] = True
    cut = ~is_first & (tokens.lengths > 0)
    kept: NDArray[Any] = np.ones(tokens.ids.size, np.bool_)
    kept[(stops - tokens.lengths)[cut]] = False
    return Tokens(tokens.ids[kept], check_lengths(tokens.lengths - cut), tokens.findings)
