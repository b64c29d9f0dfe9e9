"""Fill in the middle: rows in which parts of documents change places, so that a model learns to write what lies between two texts.

A row is split at the ends of documents. Each piece is cut, with the chance `Fim.rate`, at two characters; its parts are encoded by themselves and stand as ::

    PSM  [bos] PREFIX prefix SUFFIX suffix MIDDLE middle EOS
    SPM  [bos] PREFIX SUFFIX suffix MIDDLE prefix middle EOS

(Bavarian et al. 2022); any other piece keeps its ids, with EOS behind it. A row that has become too long loses single tokens of its pieces in turn, the last ones of a
suffix first; they are counted. The rule is that of ModelZoo 2.2, but for its faults: padding is neither decoded nor counted for the loss, a row may become
shorter, and draws are seeded.

Texts are made of ids. Special tokens in a piece come back as they were unless a cut goes through their name; a piece without any gets none, even where its
text spells one out (`TokenEngine.in_text`). A row of a stream may begin or end inside a character, whose broken bytes become U+FFFD.
Cost of a row of 2,048 tokens: 0.3 ms with the fast engine, some 5 ms without.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from dolma_dask.errors import UsageError
from dolma_dask.tokens.encoding import find_added, of_documents
from dolma_dask.tokens.engine import TokenEngine, build
from dolma_dask.tokens.shown_text import decoded
from dolma_dask.tokens.spelled import InText

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]
Ids = NDArray[np.integer[Any]]


class Fim(Struct, frozen=True, kw_only=True):
    """Chances, and the ids of special tokens.

    Raises `UsageError`: a rate is no share.
    """

    rate: float = 0.9  # share of pieces that are cut
    spm_rate: float = 0.5  # share of these that are SPM
    prefix: int
    middle: int
    suffix: int
    eos: int
    pad: int
    bos: int | None = None  # stands before each piece, if there is one

    def __post_init__(self) -> None:
        for name, share in (("fim_rate", self.rate), ("spm_rate", self.spm_rate)):
            if not 0 <= share <= 1:
                raise UsageError(f"{name}={share!r}; expected a share from 0 to 1.")


class Cut(NamedTuple):
    """A draw for a piece that is cut."""

    first: int  # characters of the prefix
    second: int  # characters of the prefix and the middle
    is_spm: bool


Draw = Callable[[int, Sequence[int]], list[Cut | None]]
"""Source of draws: the number of a row among all and the characters of its pieces -> a cut for each, None for one that stays."""


def seeded(fim: Fim, seed: int) -> Draw:
    """Return draws that depend on the seed and the number of the row alone, so that rows are the same in any file, by any worker."""

    def cut(chars: int, chance: float, one: float, other: float, spm: float) -> Cut | None:
        first, second = sorted((int(one * (chars + 1)), int(other * (chars + 1))))
        return Cut(first, second, spm < fim.spm_rate) if chance < fim.rate else None

    def draw(row: int, pieces: Sequence[int]) -> list[Cut | None]:
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, row], np.uint64)))
        chances = generator.random((len(pieces), 4)).tolist()
        return [cut(chars, *own) for chars, own in zip(pieces, chances, strict=True)]

    return draw


def like_modelzoo(fim: Fim, seed: int) -> Draw:
    """Return the draws of ModelZoo 2.2 with one process whose global generator of NumPy was seeded; all rows of a file must be drawn, in their order."""
    state = np.random.RandomState(seed)

    def cut(chars: int) -> Cut | None:
        if not state.binomial(1, fim.rate):
            return None
        first, second = sorted(state.randint(0, chars + 1, 2).tolist())
        return Cut(first, second, bool(state.binomial(1, fim.spm_rate)))

    return lambda row, pieces: [cut(chars) for chars in pieces]


class FimRows(Struct, frozen=True):
    """Rows, and what was counted in each."""

    rows: Int32s  # (n, 3, L) ids, loss mask, labels
    pads: Int64s  # (n,) positions of the ids that are padding; the end before it predicts nothing, so one more has mask 0
    removed: Int64s  # (n,) tokens that were taken out because the row had become too long
    pieces: Int64s  # (m, 3) row of each piece, where it began among the ids of the row, and how many tokens it has become


def fim_rows(
    ids: Int32s, filled: NDArray[np.integer[Any]], first_row: int, engine: TokenEngine, fim: Fim, draw: Draw
) -> FimRows:
    """Return rows made of the ids (n, L) of rows, of which the first `filled` (n,) are no padding; `first_row` is the number of the first among all.

    Where special tokens alone would fill more than a row, it stays as it is.
    """
    split = [split_at_ends(row[:size], fim.eos) for row, size in zip(ids, filled, strict=True)]
    pieces = iter(_permute([own for own, _ in split], first_row, engine, fim, draw))
    rows = np.full((len(ids), 3, ids.shape[1]), fim.pad, np.int32)
    pads, removed = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    places = [np.empty((0, 3), np.int64)]
    for number, (own, begins) in enumerate(split):
        made = [next(pieces) for _ in own]
        removed[number] = _shorten(made, ids.shape[1] + 1, fim)
        if removed[number] < 0:
            begins, parts = _as_it_is(ids[number, : filled[number]], fim.eos)
        else:
            parts = [one.laid_out(fim) for one in made]
        pads[number] = _write(np.concatenate(parts), rows[number])
        sizes = [part.size for part in parts]
        places.append(np.stack([np.full(len(begins), number), begins, sizes], axis=1))
    return FimRows(rows, pads, np.maximum(removed, 0), np.concatenate(places))


def split_at_ends(ids: Int32s, eos: int) -> tuple[list[Int32s], Int64s]:
    """Split the ids of a row at ends of documents, which are left out, as are pieces of nothing but the last; return also where each piece begins."""
    begins, (*ended, last) = _split(ids, eos)
    kept = [piece.size > 1 for piece in ended]
    pieces = [*(piece[:-1] for piece in ended if piece.size > 1), last]
    return pieces, begins[np.array([*kept, True])]


def _split(ids: Int32s, eos: int) -> tuple[Int64s, list[Int32s]]:
    """Split ids behind ends of documents; the last piece has no end."""
    ends = np.flatnonzero(ids == eos) + 1
    return np.concatenate([np.zeros(1, np.int64), ends]), np.split(ids, ends)


def _as_it_is(ids: Int32s, eos: int) -> tuple[Int64s, list[Int32s]]:
    """Return where the pieces of a row that stays begin, and their ids, with an end behind the last."""
    begins, pieces = _split(ids, eos)
    return begins, [*pieces[:-1], np.append(pieces[-1], np.int32(eos))]


class _Piece(Struct):
    """Sections of a piece, in the order in which they are shortened; one that is not cut is all suffix."""

    suffix: Ids
    prefix: Ids
    middle: Ids
    cut: Cut | None

    def laid_out(self, fim: Fim) -> Int32s:
        """Return the ids of the piece with the special tokens around them."""
        return np.concatenate([np.asarray(part, np.int32) for part in self._parts(fim)])

    def _parts(self, fim: Fim) -> Iterator[Ids | list[int]]:
        yield [] if fim.bos is None else [fim.bos]
        if self.cut is None:
            yield self.suffix
        elif self.cut.is_spm:
            yield from ([fim.prefix, fim.suffix], self.suffix, [fim.middle], self.prefix, self.middle)
        else:
            yield from ([fim.prefix], self.prefix, [fim.suffix], self.suffix, [fim.middle], self.middle)
        yield [fim.eos]


def _permute(
    split: list[list[Int32s]], first_row: int, engine: TokenEngine, fim: Fim, draw: Draw
) -> Iterator[_Piece]:
    """Yield the pieces of all rows; all are decoded, then drawn row by row, then encoded at once."""
    flat = list(chain(*split))
    texts = decoded(engine, flat)
    chars = iter(map(len, texts))
    cuts = [
        cut for row, own in enumerate(split, first_row) for cut in draw(row, list(islice(chars, len(own))))
    ]
    chosen = [
        (piece, text, cut) for piece, text, cut in zip(flat, texts, cuts, strict=True) if cut is not None
    ]
    parts = [
        part
        for _, text, cut in chosen
        for part in (text[cut.second :], text[: cut.first], text[cut.first : cut.second])
    ]
    has_added = _has_added([piece for piece, _, _ in chosen], engine)
    sections = _encode(parts, np.repeat(has_added, 3), engine)
    nothing = np.empty(0, np.int32)
    for piece, cut in zip(flat, cuts, strict=True):
        if cut is None:
            yield _Piece(piece, nothing, nothing, None)
        else:
            yield _Piece(next(sections), next(sections), next(sections), cut)


def _has_added(pieces: list[Int32s], engine: TokenEngine) -> NDArray[np.bool_]:
    """Tell of which pieces (n,) names of special tokens in the text are these tokens: they have some, or such are always taken for tokens."""
    added = build(engine).added
    if engine.in_text == "encode" or added is None or not pieces:
        return np.full(len(pieces), engine.in_text == "encode")
    lengths = np.array([piece.size for piece in pieces], np.int32)
    return find_added(np.concatenate(pieces), lengths, added) > 0


def _encode(texts: list[str], has_added: NDArray[np.bool_], engine: TokenEngine) -> Iterator[Ids]:
    """Yield the ids of each text; of those without special tokens names of such are text."""
    ids: dict[int, Ids] = {}
    ways: tuple[tuple[InText, NDArray[np.bool_]], ...] = (("encode", has_added), ("text", ~has_added))
    for in_text, is_so in ways:
        numbers = np.flatnonzero(is_so)
        if numbers.size:
            some = pa.array([texts[number] for number in numbers], pa.large_string())
            tokens = replace(engine, in_text=in_text).encode(some)
            ids |= zip(numbers.tolist(), of_documents(tokens, np.arange(len(some))), strict=True)
    return (ids[number] for number in range(len(texts)))


def _shorten(pieces: list[_Piece], most: int, fim: Fim) -> int:
    """Take tokens out of pieces in turn until all have `most` tokens; return how many, -1 if there are not enough.

    A piece gives one token of its section, of suffixes the last, of others the first; where the section is empty, it gives none in this turn and goes on to its
    next section.
    """
    left = [[piece.suffix.size, piece.prefix.size, piece.middle.size] for piece in pieces]
    framing = sum((1 if piece.cut is None else 4) + (fim.bos is not None) for piece in pieces)
    excess = max(framing + sum(map(sum, left)) - most, 0)
    if framing > most:
        return -1
    section, turn, missing = [0] * len(pieces), 0, excess
    while missing:
        at = turn % len(pieces)
        if section[at] < 3:
            if left[at][section[at]]:
                left[at][section[at]] -= 1
                missing -= 1
            else:
                section[at] += 1
        turn += 1
    for piece, (suffix, prefix, middle) in zip(pieces, left, strict=True):
        piece.suffix = piece.suffix[:suffix]
        piece.prefix = piece.prefix[piece.prefix.size - prefix :]
        piece.middle = piece.middle[piece.middle.size - middle :]
    return excess


def _write(tokens: Int32s, row: Int32s) -> int:
    """Write a row (3, L) that holds padding; return how much of its ids is left so."""
    length, predicted = row.shape[1], tokens.size - 1
    row[0, : tokens.size] = tokens[:length]
    row[1] = np.arange(length) < predicted
    row[2, :predicted] = tokens[1:]
    return max(int(length) - int(tokens.size), 0)
