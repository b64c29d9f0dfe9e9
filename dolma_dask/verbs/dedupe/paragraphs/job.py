"""Duplicates among paragraphs: the job of `dedupe` with the unit paragraph.

A paragraph that takes part has an item, the hash of its bytes, or with n-grams one for each of them; items go through the exchange as documents do. An item is named by
its number among those of its shard, which stands where documents have their row: records are no larger, and the first of equal items is the first in the listing.
How wide paragraphs are, and how many items each has, waits in the staging files.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.engine import Ran, Step, WorkDir
from dolma_dask.errors import DataError
from dolma_dask.exchange import Reducer
from dolma_dask.exchange.contract import ROW_BITS, Records, key_dtype, keyed, locations
from dolma_dask.exchange.flag_rows import STAGED, FlagRows, StagingEmitter
from dolma_dask.exchange.job import Found
from dolma_dask.formats.digests import word_keys
from dolma_dask.journal import Record, work_key
from dolma_dask.text import compute as pc
from dolma_dask.text.columns import for_kernel, large_strings, string_parts, validity
from dolma_dask.text.kernels import Bools, Bytes, Counts, Words
from dolma_dask.text.tables import load_tables
from dolma_dask.text.word_breaks import load_word_breaks
from dolma_dask.text.xxh3 import hash_pieces, hash_strings
from dolma_dask.verbs.dedupe.bloom.filters import Keys, Seen
from dolma_dask.verbs.dedupe.choice import Choice
from dolma_dask.verbs.dedupe.job import Deduplication, SurvivorReducer, document_columns, ranks_of
from dolma_dask.verbs.dedupe.paragraphs.copies import CopiesReducer
from dolma_dask.verbs.dedupe.paragraphs.cuts import find_paragraphs
from dolma_dask.verbs.dedupe.paragraphs.flags import ParagraphOutput, ParagraphSource
from dolma_dask.verbs.dedupe.paragraphs.ngrams import find_ngrams, powers
from dolma_dask.verbs.dedupe.paragraphs.summary import ParagraphSummary, summarize

VERSION = 2
"""Raised whenever other paragraphs are flagged, or in another way, for the same input and arguments."""

PART_BYTES = 4 << 20
"""Bytes of paragraphs whose n-grams are held at once, or those of one paragraph."""


class Paragraphs(Struct, frozen=True):
    """How texts are cut into paragraphs, which of them take part, and what is compared of each."""

    separator: str = "\n"
    skip_empty: bool = False  # those with nothing but white space take no part
    min_length: int = 0  # code points of one that does
    min_words: int = 0  # words of one that does
    ngram: int = 0  # words of an n-gram; 0: paragraphs are compared as they are
    stride: int = 1
    overlap: float = 1.0  # share of the n-grams from which a paragraph is flagged
    skip_short: bool = (
        False  # those without an n-gram take no part; else those with fewer than two are compared as they are
    )
    min_copies: int = 0  # documents in which an item is flagged wherever it is; 0: all but the first are

    @property
    def needs_words(self) -> bool:
        """Whether words are looked for."""
        return self.ngram > 0 or self.min_words > 0

    def params(self) -> dict[str, Any]:
        """Return everything that decides."""
        return {"unit": "paragraph", **asdict(self)}


class Pieces(Struct, frozen=True):
    """Paragraphs of some texts, back to back: text ``i`` has those from ``bounds[i]`` to ``bounds[i + 1]``."""

    bounds: Counts  # (texts + 1,)
    widths: Counts  # (pieces,) code points, with the separator behind
    items: Counts  # (pieces,) 1 for those that take part, as far as no words are looked for
    data: Bytes  # the texts
    starts: Counts  # (pieces,) where in them each begins, and
    ends: Counts  # (pieces,) where the separator behind it does

    @property
    def texts(self) -> pa.LargeStringArray:
        """The paragraphs without the separator, copied."""
        every = large_strings(
            np.append(np.stack([self.starts, self.ends], 1), self.ends.max(initial=0)), self.data
        )
        return every.take(pa.array(np.arange(0, len(every), 2)))


def cut(texts: pa.LargeStringArray, kept: Bools, how: Paragraphs) -> Pieces:
    """Return the paragraphs of texts, as ``text.split(separator)`` makes them.

    Those of a text that is not `kept` take no part, nor do those of no width: an empty text, and what is behind the separator that ends its text, are no blank line
    of which there could be a copy.
    """
    bounds, places, lengths = _places(texts, how.separator)
    widths = lengths + len(how.separator)
    widths[bounds[1:] - 1] -= len(how.separator)  # every text has a piece
    takes_part = np.repeat(kept, np.diff(bounds)) & (widths > 0)
    if how.min_length:
        takes_part &= lengths >= how.min_length
    pieces = Pieces(bounds, widths, takes_part.astype(np.int64), *places)
    if how.skip_empty:
        pieces.items[np.asarray(pc.utf8_is_space(pieces.texts)) | (lengths == 0)] = 0
    return pieces


def _places(
    texts: pa.LargeStringArray, separator: str
) -> tuple[Counts, tuple[Bytes, Counts, Counts], Counts]:
    """Return how many paragraphs stand before each text; the texts, and where in them each paragraph begins and ends; and their code points."""
    offsets, data = string_parts(texts)
    pattern = np.frombuffer(separator.encode(), np.uint8)
    room = len(texts) + np.count_nonzero(data[offsets[0] : offsets[-1]] == pattern[0])
    bounds = np.empty(len(texts) + 1, np.int64)
    starts, ends, lengths = (np.empty(room, np.int64) for _ in range(3))
    count = find_paragraphs(data, offsets, for_kernel(pattern), bounds, starts, ends, lengths)
    return bounds, (data, starts[:count], ends[:count]), lengths[:count]


def item_keys(pieces: Pieces, how: Paragraphs) -> Iterator[tuple[int, int, Words, Words]]:
    """Yield runs of paragraphs, from one to before another, with both halves of the keys of their items; sets how many items each has."""
    if not how.needs_words:
        takes_part = pieces.items > 0
        keys = hash_pieces(pieces.data, pieces.starts[takes_part], pieces.ends[takes_part])
        yield 0, len(pieces.items), *keys
        return
    offsets, data = string_parts(pieces.texts)
    for first, last in pairwise(_cuts(offsets)):
        items, own = pieces.items[first:last], offsets[first : last + 1]
        is_whole, keys = _ngrams(data, own, items, how)
        if is_whole.any():
            whole = hash_strings(data, own)
            keys = whole if is_whole.all() and not how.ngram else _joined(keys, whole, items, is_whole)
        yield first, last, *keys


def _cuts(offsets: Counts) -> list[int]:
    """Return where runs of paragraphs of about `PART_BYTES` begin, and where the last one ends."""
    starts = [0]
    while starts[-1] < len(offsets) - 1:
        end = int(np.searchsorted(offsets, offsets[starts[-1]] + PART_BYTES, "right")) - 1
        starts.append(max(end, starts[-1] + 1))
    return starts


def _ngrams(data: Any, offsets: Counts, items: Counts, how: Paragraphs) -> tuple[Bools, tuple[Words, Words]]:
    """Set how many items each paragraph has; return which are compared as they are, and the keys of n-grams, with room for theirs."""
    is_whole = np.zeros(len(items), np.bool_)
    room = int(offsets[-1] - offsets[0]) if how.ngram else 0  # address space: a word has a byte or more
    high, low = (np.empty(room + len(items), np.uint64) for _ in range(2))
    window = np.empty(2 * max(how.ngram, 1), np.uint64)
    numbers, blocks, machine = load_word_breaks()
    count = find_ngrams(
        data, np.ascontiguousarray(offsets), how.ngram, how.stride, how.min_words, how.skip_short, *powers(how.ngram),
        *load_tables(), numbers, blocks, machine, window, items, is_whole, high, low,
    )  # fmt: skip
    return is_whole, (high[:count], low[:count])


def _joined(
    keys: tuple[Words, Words], whole: tuple[Words, Words], items: Counts, is_whole: Bools
) -> tuple[Words, Words]:
    """Return the keys of all items: of n-grams where they are, of whole paragraphs at their place."""
    at = (np.cumsum(items) - items)[is_whole]
    joined = []
    for ngrams, paragraphs in zip(keys, whole, strict=True):
        column = ngrams if len(ngrams) else np.empty(int(items.sum()), np.uint64)
        column[at] = paragraphs[is_whole]
        joined.append(column)
    return joined[0], joined[1]


def _rows_of(pieces: Pieces, first: int, last: int) -> Counts:
    """Return the text of each item of the paragraphs from `first` to before `last`."""
    text = np.searchsorted(pieces.bounds, np.arange(first, last), "right") - 1
    return np.repeat(text, pieces.items[first:last])


LISTS = pa.large_list(pa.uint32())


def staged_lists(pieces: Pieces) -> dict[str, pa.Array]:
    """Return what is staged of paragraphs: their widths, and how many items each has unless that is one for each that has a width."""
    columns = {"widths": pieces.widths}
    if not np.array_equal(pieces.items, pieces.widths > 0):
        columns["items"] = pieces.items
    return {
        name: pa.LargeListArray.from_arrays(pieces.bounds, column.astype(np.uint32))
        for name, column in columns.items()
    }


@dataclass(frozen=True)
class ParagraphEmitter(StagingEmitter):
    """Emits the items of paragraphs: 24 bytes, or 32 with a rank or the place of their document."""

    how: Paragraphs
    choice: Choice
    seen: Seen | None = None  # only items that are in it have records

    staged: ClassVar[pa.Schema] = pa.schema([*STAGED, ("widths", LISTS), ("items", LISTS)])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the records."""
        if self.how.min_copies:
            return key_dtype("document")
        return key_dtype() if self.choice.keep == "first" else key_dtype("rank")

    def give(
        self,
        rows: FlagRows,
        batch: pa.RecordBatch,
        number: int,
        counts: Counter[str],
        out: Callable[[Records], None],
    ) -> FlagRows:
        """See `StagingEmitter`."""
        chosen = self.choice.of(batch, validity(rows.ids), counts)
        texts = batch.column("text")
        pieces = cut(pc.fill_null(texts, "") if texts.null_count else texts, chosen.kept, self.how)
        more = {} if self.choice.keep == "first" else {"rank": ranks_of(chosen, rows)}
        if self.how.min_copies:
            more = {"document": locations(number, rows.first, len(rows))}
        if chosen.salts is not None:
            more["salt"] = chosen.salts
        for first, last, high, low in item_keys(pieces, self.how):
            items = pieces.items[first:last]
            row = _rows_of(pieces, first, last) if more else None
            records = self._records(
                (high, low), {name: words[row] for name, words in more.items()}, number, counts
            )
            if self.seen is not None:
                texts = pieces.texts.slice(first, last - first).filter(pa.array(items > 0))
                records = records[self.seen.contains((records["hi"], records["lo"]), texts)]
            out(records)
        return replace(rows, more=staged_lists(pieces))

    def _records(self, keys: Keys, more: dict[str, Words], number: int, counts: Counter[str]) -> Records:
        """Return the records of items, which are numbered on in their shard."""
        first, count = counts["compared"], len(keys[0])
        counts["compared"] += count
        if counts["compared"] > 1 << ROW_BITS:
            raise DataError(
                f"shard {number} has more than {1 << ROW_BITS:,} paragraphs or n-grams to compare; expected fewer in one file. Cut it into several: "
                "dolma-dask mix ... --max-size."
            )
        if (salts := more.pop("salt", None)) is not None:
            keys = word_keys(*keys, salts)
        return keyed(keys, locations(number, first, count), **more)


@dataclass(frozen=True, kw_only=True)
class ParagraphDeduplication(Deduplication):
    """Paragraphs are duplicates if they are equal, or enough of their n-grams are."""

    how: Paragraphs = field(default_factory=Paragraphs)

    source = ParagraphSource

    @property
    def requested(self) -> Mapping[str, Any]:
        """See `Exchange`."""
        return {**super().requested, **self.how.params()}

    @property
    def key(self) -> str:
        """Digest of what was requested."""
        return work_key("dedupe-paragraphs", VERSION, self.described)

    def find(self, work: WorkDir) -> Generator[Step, Any, Found]:
        """See `Exchange`."""
        emitter = ParagraphEmitter(self.policy, self.verb, self.how, self.choice, self.seen)
        least = self.how.min_copies
        reducer: Reducer = CopiesReducer(least) if least else SurvivorReducer()
        return (yield from self.exchanged(work, emitter, reducer))

    def output(self, infos: Sequence[Mapping[str, Any]] = ()) -> ParagraphOutput:
        """See `Exchange`."""
        reads = document_columns(("text", *self.choice.names))
        share = self.how.overlap if self.how.ngram else None
        return ParagraphOutput(
            self.root, self.flag, reads=reads, overlap=share, longest=self.policy.max_record_bytes
        )

    def summarize(self, ran: Ran, known: Record | None) -> ParagraphSummary:
        """See `Deduplication`."""
        return self._told(summarize(ran.summary, tuple(ran.records.values())), known)
