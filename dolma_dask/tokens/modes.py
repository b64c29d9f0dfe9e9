"""The row machine of `hdf5`: how records become sequences of tokens, sequences become rows, and rows become channels.

A mode is a choice of four parts. **Encode** (`Recipe`): records to sequences of words, ids of which bit 31 tells that they are not to be predicted.
**Pack**: all documents as one stream, every segment in a row of its own, or several in a row as one of `bins.PACKINGS` puts them together. **Fill**
(`Filler`): segments to channels. **Order**: that of the documents, or shuffled (`outputs.hdf5.shuffling`). Work goes in two passes: the first encodes
each shard once, the second makes the rows of a file from the words that they consist of. Files, workers and resuming are not a mode's business.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import NDArray

from dolma_dask.formats.hdf5 import LM_FEATURES, VSL_FEATURES, TextCounts
from dolma_dask.tokens.bins import PACKINGS, Bins
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.filling import fill_rows
from dolma_dask.tokens.packing import Int32s, Int64s, Rows, Segments, Tail, document_segments
from dolma_dask.tokens.segments import Bounds, Placed, placed_runs, side_by_side
from dolma_dask.tokens.shortening import short_sizes, short_sizes_like_modelzoo
from dolma_dask.tokens.shown_text import count_text
from dolma_dask.tokens.specials import Specials

Packing = Literal["best_fit", "modelzoo", "next_fit", "spfhp", "lpfhp"]
"""Ways to put several segments into a row; see `dolma_dask.tokens.bins`."""

WORDS = np.dtype("<u4")
"""Type of staged words of which some are not to be predicted."""


class Recipe(Protocol):
    """Way from records to sequences of words; frozen and picklable."""

    @property
    def engine(self) -> TokenEngine: ...
    @property
    def specials(self) -> Specials: ...
    @property
    def reads(self) -> str: ...  # "text", or "record": whole records as JSON
    @property
    def has_marks(self) -> bool: ...  # bit 31 of some words is set
    @property
    def locked(self) -> float: ...  # CPU-seconds for each MB of text that are Python's, besides encoding it

    def params(self) -> Mapping[str, Any]:
        """Return all that decides the sequences of given records, JSON-able."""
        ...

    def encode(self, column: pa.LargeStringArray) -> tuple[Tokens, TextCounts]:
        """Return the sequences of a batch of records, and what was counted."""
        ...

    def value_bytes(self, column: pa.LargeStringArray) -> Int64s:
        """Return UTF-8 bytes of the values of each record (n,), by which ModelZoo cuts chunks."""
        ...


class Filler(Protocol):
    """Makes rows, batch after batch from a first one on."""

    def __call__(self, words: Int32s, rows: Rows, bounds: Bounds) -> tuple[NDArray[np.int32], Int64s, Placed]:
        """Return rows (n, channels, length), what was counted in each (n, 5 or 6; see `RowCounts.of`), and where sequences of the words, which lie within
        `bounds`, stand in them."""
        ...


class Mode(Struct, frozen=True):
    """A mode with its options: rows of three channels, or five if segments of several documents share them."""

    name: str  # for users
    recipe: Recipe  # how records become sequences
    length: int = 2048  # max_seq_length
    packing: Packing | None = None  # how several segments share a row; None: they do not
    packs: bool = True  # without `packing`: all documents are one stream; else each segment is a row
    tail: Tail = "pad"  # what happens to the last tokens of the stream
    least: int = 10  # segments of fewer tokens make no row
    short_seq_prob: float = 0.0  # share of rows cut at random
    seed: int = 0  # of that chance
    inverted_mask: bool = False  # 1 where nothing is predicted
    max_sequences: int | None = None  # segments of a row at most, if several share it
    max_chunk_size: int = 1024  # KiB of text whose sequences share rows, if `packing` is that of ModelZoo
    shows_last: bool = False  # the last token of a segment stands in the row too, and predicts nothing
    like_modelzoo: bool = False  # chances of `short_seq_prob` are those of ModelZoo 2.2 run with one process

    per_row: ClassVar[int] = 1
    """Segments of a row, if none is packed."""

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the channels of a row."""
        return LM_FEATURES if self.packing is None else VSL_FEATURES

    @property
    def ids(self) -> tuple[int, ...]:
        """Channels of ids."""
        return (0,)

    @property
    def engine(self) -> TokenEngine:
        """The tokenizer."""
        return self.recipe.engine

    @property
    def specials(self) -> Specials:
        """End of a document, and padding."""
        return self.recipe.specials

    @property
    def cost(self) -> str:
        """Name of what it costs to make rows, for `dolma_dask.placement`."""
        return "hdf5"

    @property
    def words(self) -> np.dtype[Any]:
        """Type of staged words."""
        return WORDS if self.recipe.has_marks else self.engine.dtype

    @property
    def found(self) -> Mapping[str, str]:
        """Values in force, for people, of options that were left to the tokenizer; they decide nothing."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of what was found with the tokenizer."""
        return ()

    @property
    def stream_tail(self) -> Tail | None:
        """Treatment of the last tokens if all documents are one stream; None if they are not."""
        return self.tail if self.packs and self.packing is None else None

    def params(self) -> Mapping[str, Any]:
        """Return all that decides the rows of given records, JSON-able."""
        own = {name: value for name, value in asdict(self).items() if name not in ("name", "recipe")}
        if not self.shows_last:
            del own["shows_last"]
        if self.packing != "modelzoo":
            del own["max_chunk_size"]
        if self.packing is None:
            del own["packing"], own["max_sequences"]
        return {"mode": self.name, **self.recipe.params(), "rows": own}

    def segments(self, lengths: Int32s) -> Segments:
        """Return the segments of sequences (n,) that stand back to back; long ones are cut."""
        return document_segments(lengths, self.length, self.least)

    def bins(self, sizes: Int64s) -> Bins:
        """Return the rows of the segments of a window, of which `sizes` (n,) tokens are to be predicted."""
        assert self.packing is not None
        return PACKINGS[self.packing](sizes, self.length, self.max_sequences)

    def rows(self, segments: Segments) -> Rows:
        """Return the rows of the segments of a window."""
        if self.packing is None:
            return Rows.of(segments, self.per_row)
        bins = self.bins(segments.sizes - 1)
        return Rows(Segments(segments.starts[bins.order], segments.sizes[bins.order]), bins.bounds)

    def firsts(self, rows: Rows) -> Int64s:
        """Return the positions (n_segments,) at which the segments of rows begin."""
        return np.zeros(len(rows.segments), np.int64) if self.packing is None else side_by_side(rows)

    def filler(self, first_row: int) -> Filler:
        """Return what makes the rows from one on, by its number among all."""
        return RowFiller(self, first_row)


class RowFiller:
    """Makes rows of three or five channels, some of them short; see `Filler`."""

    def __init__(self, mode: Mode, first_row: int) -> None:
        self.mode, self.row = mode, first_row
        draw = short_sizes_like_modelzoo if mode.like_modelzoo else short_sizes
        is_cut = mode.short_seq_prob > 0 and mode.packing is None
        self._sizes = draw(first_row, mode.short_seq_prob, mode.seed, mode.length) if is_cut else None

    def __call__(self, words: Int32s, rows: Rows, bounds: Bounds) -> tuple[NDArray[np.int32], Int64s, Placed]:
        segments = rows.segments
        if self._sizes is not None:
            segments = Segments(segments.starts, np.minimum(segments.sizes, self._sizes(len(rows))))
            rows = Rows(segments, rows.bounds)
        placed = placed_runs(rows, self.mode.firsts(rows), bounds)
        made, counts, placed = self.make(words, rows, placed)
        self.row += len(rows)
        shown = [count_text(self.mode.engine, made[:, at]) for at in self.mode.ids]
        return made, np.concatenate([counts[:, :3], sum(shown), counts[:, 3:]], axis=1), placed

    def make(self, words: Int32s, rows: Rows, placed: Placed) -> tuple[NDArray[np.int32], Int64s, Placed]:
        """Return the next rows, in each (n, 3 or 4) padding, positions for the loss, ends of documents and tokens that were taken out, and
        where sequences stand: as it was given, unless tokens change places."""
        mode = self.mode
        made, counts = fill_rows(
            words,
            rows,
            (len(mode.features), mode.length),
            eos_id=mode.specials.eos_id,
            pad_id=mode.specials.pad_id,
            inverted_mask=mode.inverted_mask,
            shows_last=mode.shows_last,
        )
        return made, counts, placed
