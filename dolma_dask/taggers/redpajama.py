"""The rule-based quality signals of RedPajama-V2, bit for bit, and the fields that CCNet gave to its documents.

Source: ``app/src/core/quality_signals`` of RedPajama-Data, as its published signals have them. Every score is ``round(x, 8)``.

- Tokens are ``re.findall(r"\\w+|[^\\w\\s]+", text)`` (NLTK 3.8.1 made the published ones), with their case. Words are those of the normalised text:
  without ASCII punctuation, in lower case, in canonical decomposition, in this order (`dolma_dask.text.normalization`); so lengths of words count combining marks.
- Lines end at ``\\n`` alone; the one at the end of a text begins no other line. Offsets and lengths are in code points; a line's end is behind its ``\\n``.
- ``frac_chars_top_{2,3,4}gram``: code points of all copies of the most common n-gram of words (of several, the first seen), by those of all words; 0 if none
  occurs twice. ``frac_chars_dupe_{5..10}grams``: code points of the words that lie in n-grams that occur more than once, each once.
- ``unigram_entropy``: natural logarithm, summed in the order in which words are first seen.
- ``stop_word_fraction``: tokens, in their case, that are in the list of the document's language; 0 for a text without words. ``ldnoobw_words``: n-grams of
  words that are in the list, for each n that occurs in it, overlapping ones too.
- ``ut1_blacklist``: number of the combination of UT1 categories of the document's domain, which has to be listed itself.

The language is ``metadata.language``, the domain ``metadata.source_domain``. A language without list, and a list that is not given, give no value (null). Other
signals of RedPajama-V2 (``rps_doc_ml_*``, ``*_importance``) need models.

Scores are computed in one pass over the text as it is and one over its normalised words. Words and n-grams are compared by 64-bit hashes. Memory: some 70 bytes
for each word of the longest text, and 16 for each listed domain.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.formats.json.attributes import AttributeKind
from dolma_dask.formats.json.write import round_scores
from dolma_dask.formats.metadata import scan_metadata
from dolma_dask.taggers import redpajama_raw as raw
from dolma_dask.taggers import redpajama_words as normal
from dolma_dask.taggers.base import Open, ViewTagger
from dolma_dask.taggers.word_lists import (
    CATEGORIES,
    Domains,
    WordLists,
    hash_strings,
    read_lines,
    read_stop_words,
    stop_words,
)
from dolma_dask.text import compute as pc
from dolma_dask.text.kernels import Counts, Floats, Words
from dolma_dask.text.ngrams import table_slots
from dolma_dask.text.tables import load_str_classes
from dolma_dask.text.view import TextView

DECIMALS = 8

DOCUMENT_SIGNALS = {
    "rps_doc_curly_bracket": "{ and }, by the characters of the text",
    "rps_doc_ldnoobw_words": "phrases of the list bad_words of the language",
    "rps_doc_lorem_ipsum": '"lorem ipsum" in the normalised text, by its characters',
    "rps_doc_stop_word_fraction": "stop words of the language, by all tokens",
    "rps_doc_ut1_blacklist": "number of the combination of UT1 categories of the domain",
    **{
        f"rps_doc_frac_chars_dupe_{n}grams": f"characters of the words in {n}-grams that occur more than once, by those of all words"
        for n in (10, 5, 6, 7, 8, 9)
    },
    **{
        f"rps_doc_frac_chars_top_{n}gram": f"characters of all copies of the most common {n}-gram, by those of all words"
        for n in (2, 3, 4)
    },
    "rps_doc_frac_all_caps_words": "tokens in upper case, by all tokens",
    "rps_doc_frac_lines_end_with_ellipsis": "lines that end with an ellipsis, by all lines",
    "rps_doc_frac_no_alph_words": "tokens without a letter from a to z, by all tokens",
    "rps_doc_frac_unique_words": "different words, by all words",
    "rps_doc_mean_word_length": "mean length of the words in code points",
    "rps_doc_num_sentences": "sentences: stretches between . ! ? with a word",
    "rps_doc_symbol_to_word_ratio": "#, ... and ellipsis signs, by all tokens",
    "rps_doc_unigram_entropy": "entropy of the words, natural logarithm",
    "rps_doc_word_count": "words of the normalised text",
}
"""Signals of a document, in the order in which they are published, and what each is."""

LINE_SIGNALS = {
    "rps_lines_ending_with_terminal_punctution_mark": "whether each line ends with . ! ? or a closing quotation mark",
    "rps_lines_javascript_counts": 'words "javascript" of each line',
    "rps_lines_num_words": "words of each line",
    "rps_lines_numerical_chars_fraction": "numeric characters of each line, by those of the normalised line",
    "rps_lines_start_with_bulletpoint": "whether each line begins with a bullet",
    "rps_lines_uppercase_letter_fraction": "letters in upper case of each line, by its characters",
}
"""Signals of lines, likewise."""

CCNET_SIGNALS = {
    "ccnet_length": "characters of the text",
    "ccnet_original_length": "characters before CCNet took lines out",
    "ccnet_nlines": "lines of the text",
    "ccnet_original_nlines": "lines before CCNet took some out",
    "ccnet_language_score": "probability of the language",
    "ccnet_perplexity": "perplexity of a model of Wikipedia in the language",
    "ccnet_bucket": "by perplexity: 0 head, 1 middle, 2 tail",
}
"""Fields of the metadata that CCNet made, likewise."""

BAD_WORDS, STOP_WORDS, DOMAINS = "bad_words/", "stop_words/", "bad_urls/domain_to_category_id.json"
"""Files in the layout of RedPajama-Data: a list for each language, ``bad_words/en.txt``, of a phrase a line; likewise for stop words, in place of the list shipped
here; and a number for each domain."""

UT1 = "blacklists/{}/domains"
"""List of a category, as UT1 is published; read where `DOMAINS` is not given."""

_BUCKETS = ("head", "middle", "tail")
_KEPT = "redpajama_v2"
_NO_WORDS = WordLists.of({})


class Lists(Struct, frozen=True):
    """Lists that documents are compared with."""

    stop_words: WordLists
    bad_words: WordLists = _NO_WORDS
    domains: Domains | None = None

    @classmethod
    def read(cls, files: Mapping[str, Open]) -> "Lists":
        """Read the user's files."""
        stop, bad = (_read_words(files, folder) for folder in (STOP_WORDS, BAD_WORDS))
        shipped = stop_words() if not stop else WordLists.of({**read_stop_words(), **stop})
        return cls(shipped, WordLists.of(bad), _read_domains(files))


def _read_domains(files: Mapping[str, Open]) -> Domains | None:
    """Return the numbers of domains: those of their own file, else those that follow from the lists of UT1."""
    with ExitStack() as stack:
        if DOMAINS in files:
            return Domains.read(stack.enter_context(files[DOMAINS]()), DOMAINS)
        lists = {name: UT1.format(name) for name in CATEGORIES}
        opened = {name: stack.enter_context(files[path]()) for name, path in lists.items() if path in files}
        return Domains.of_categories(opened) if opened else None


def _read_words(files: Mapping[str, Open], folder: str) -> dict[str, list[str]]:
    """Return the phrases of each language: the lines of its file."""
    lists = {}
    for name, open_file in files.items():
        if name.startswith(folder):
            with open_file() as file:
                lists[name.removeprefix(folder).removesuffix(".txt")] = read_lines(file, name)
    return lists


class _Raw(Struct, frozen=True):
    """Measures that `redpajama_raw.measure_raw` takes of the texts of a view."""

    counts: Counts  # (COUNTED, n)
    line_bounds: Counts  # (n + 1,) lines of each text
    line_ends: Counts  # (lines,) in code points
    line_scores: Floats  # (SCORED, lines)


class _Lines(Struct, frozen=True):
    """Lines of some texts."""

    bounds: Counts  # (n + 1,) lines of each text
    ends: Counts  # (lines,) in code points
    scores: tuple[Floats, ...]  # (lines,) each: terminal, bullet, upper case, words, "javascript", numeric


def _measure_raw(view: TextView, salts: Words, table: Words, *, with_lines: bool) -> _Raw:
    cuts, data = view.pieces
    lines = (len(cuts) - 1) * with_lines
    found = _Raw(
        np.empty((raw.COUNTED, len(view)), np.int64),
        np.zeros(len(view) + 1, np.int64),
        np.empty(lines, np.int64),
        np.empty((raw.SCORED, lines)),
    )
    raw.measure_raw(
        data, cuts, view.lines.bounds, *load_str_classes(), salts, table, np.empty(raw.COUNTED, np.int64),
        found.counts, found.line_bounds, found.line_ends, found.line_scores,
    )  # fmt: skip
    if with_lines:
        view.kept[_KEPT] = found
    return found


def _measure_words(view: TextView, languages: Counts, lists: WordLists) -> Floats:
    """Return the values of all texts (`normal.MEASURED`, n)."""
    table = view.normalised
    tokens = table.tokens
    bounds = tokens.bounds[view.lines.bounds]
    most = int(np.diff(bounds).max(initial=0))
    first, count, positions = (np.empty(most, np.int32) for _ in range(3))
    out = np.zeros((normal.MEASURED, len(view)))
    normal.measure_words(
        tokens.data, tokens.starts, bounds, table.chars, table.hashes,
        languages, lists.salts, lists.sizes, lists.table,
        np.empty(most + 1, np.int64), np.zeros(2 * table_slots(most), np.uint64),
        first, count, positions, np.empty(most, np.bool_), out,
    )  # fmt: skip
    return out


def _share(count: Floats | Counts, of: Floats | Counts) -> pa.Array:
    """Return shares, null where there is nothing to count."""
    return pa.array(_share_or_zero(count, of), mask=of == 0)


def _share_or_zero(count: Floats | Counts, of: Floats | Counts) -> Floats:
    return round_scores(count / np.where(of == 0, 1, of), DECIMALS)


def _document_signals(lists: Lists, view: TextView, metadata: pa.LargeStringArray) -> Iterator[pa.Array]:
    """Rule-based signals of documents of RedPajama-V2, as they are published."""
    fields, _ = scan_metadata(metadata, {"metadata.language": "string", "metadata.source_domain": "string"})
    language = fields["metadata.language"]
    stop, bad = lists.stop_words.rows(language), lists.bad_words.rows(language)
    salts, listed = lists.stop_words.salts[stop], lists.stop_words.table
    counts = _measure_raw(view, salts, listed, with_lines=not view.is_large).counts
    values = _measure_words(view, bad, lists.bad_words)
    tokens, words, chars = counts[raw.TOKENS], values[normal.WORDS], values[normal.CHARS]
    shares = round_scores(values[normal.TOP :], DECIMALS)
    yield pa.array(_share_or_zero(counts[raw.BRACES], view.lengths))
    yield pa.array(values[normal.LISTED], mask=bad == len(lists.bad_words.languages))
    yield pa.array(_share_or_zero(values[normal.LOREM_IPSUM], np.maximum(chars + words - 1, 0)))
    stopped = _share_or_zero(np.where(words > 0, counts[raw.STOP_WORDS], 0), tokens)
    yield pa.array(stopped, mask=stop == len(lists.stop_words.languages))
    domains = fields["metadata.source_domain"]
    yield pa.nulls(len(view), pa.float64()) if lists.domains is None else lists.domains.find(domains)
    for n in (10, 5, 6, 7, 8, 9, 2, 3, 4):
        yield pa.array(shares[n - 2])
    yield _share(counts[raw.CAPITAL], tokens)
    yield _share(counts[raw.ELLIPSES], counts[raw.LINES])
    yield pa.array(round_scores(1 - counts[raw.LATIN] / np.maximum(tokens, 1), DECIMALS), mask=tokens == 0)
    yield _share(values[normal.DISTINCT], words)
    yield _share(chars, words)
    yield pa.array(counts[raw.SENTENCES].astype(np.float64))
    yield _share(counts[raw.SYMBOLS], tokens)
    yield pa.array(round_scores(values[normal.ENTROPY], DECIMALS), mask=words == 0)
    yield pa.array(words)


def _shipped_lists(view: TextView, metadata: pa.LargeStringArray) -> Iterator[pa.Array]:
    """Rule-based signals of documents of RedPajama-V2, as they are published."""
    return _document_signals(Lists(stop_words()), view, metadata)


def _with_lists(files: Mapping[str, Open]) -> Callable[..., Iterator[pa.Array]]:
    return partial(_document_signals, Lists.read(files))


@cache
def _javascript() -> np.uint64:
    return np.uint64(hash_strings(pa.array(["javascript"], pa.large_string()))[0])


def _line_signals(view: TextView) -> Iterator[pa.Array]:
    """Rule-based signals of lines of RedPajama-V2, a span for each line, as they are published."""
    found = _joined_lines(view) if view.is_large else _lines(view)
    bounds, ends, (terminal, bullet, upper, words, javascript, numeric) = (
        found.bounds,
        found.ends,
        found.scores,
    )
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1]
    starts[bounds[:-1][np.diff(bounds) > 0]] = 0
    spans = partial(_spans, bounds, starts, ends)
    yield from map(spans, (terminal, javascript, words, numeric))
    yield spans(bullet, mask=pa.array(np.diff(bounds) == 0))
    yield spans(upper)


def _lines(view: TextView) -> _Lines:
    """Measure the lines of a block."""
    found = view.kept.get(_KEPT) or _measure_raw(
        view, np.zeros(len(view), np.uint64), _NO_WORDS.table, with_lines=True
    )
    table, (cuts, _) = view.normalised, view.pieces
    tokens = table.tokens
    of_words = np.empty((normal.LINE_MEASURED, len(cuts) - 1))
    normal.measure_lines(
        tokens.data, tokens.starts, tokens.bounds, table.chars, table.hashes, cuts, *load_str_classes(), _javascript(), of_words
    )  # fmt: skip
    lines = int(found.line_bounds[-1])
    scores = tuple(round_scores(row[:lines], DECIMALS) for row in (*found.line_scores, *of_words))
    return _Lines(found.line_bounds, found.line_ends[:lines], scores)


def _joined_lines(view: TextView) -> _Lines:
    """Measure the lines of many texts, or large ones, part by part: no line depends on another, but for where it stands."""
    bounds, chars = np.zeros(len(view) + 1, np.int64), np.zeros(len(view), np.int64)
    ends, scores = [np.empty(0, np.int64)], [[np.empty(0)] for _ in LINE_SIGNALS]
    for row, part in view.parts():
        found, rows = _lines(part), slice(row, row + len(part))
        lines = np.diff(found.bounds)
        bounds[1:][rows] += lines
        ends.append(found.ends + np.repeat(chars[rows], lines))
        for column, values in zip(scores, found.scores, strict=True):
            column.append(values)
        chars[rows] += part.lengths
    # each is joined and let go: of short lines these are more bytes than of text
    joined = tuple(np.concatenate(scores.pop(0)) for _ in range(len(scores)))
    return _Lines(np.cumsum(bounds), np.concatenate(ends), joined)


def _spans(
    bounds: Counts, starts: Counts, ends: Counts, scores: Floats, mask: pa.Array | None = None
) -> pa.Array:
    """Return a list of spans for each text."""
    parts = pa.StructArray.from_arrays(
        [pa.array(starts), pa.array(ends), pa.array(scores)], names=["start", "end", "score"]
    )
    return pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), parts, mask=mask)


def _ccnet_fields(view: TextView, metadata: pa.LargeStringArray) -> Iterator[pa.Array]:
    """Fields that CCNet gave to the documents of RedPajama-V2, from their metadata, as its signals have them."""
    names = [name.removeprefix("ccnet_") for name in CCNET_SIGNALS]
    kinds: dict[str, AttributeKind] = {
        f"metadata.{name}": "string" if name == "bucket" else "number" for name in names
    }
    fields, _ = scan_metadata(metadata, kinds)
    for name in names[:-1]:
        yield fields[f"metadata.{name}"]
    buckets = pc.index_in(fields["metadata.bucket"], value_set=pa.array(_BUCKETS, pa.large_string()))
    yield buckets.cast(pa.float64())


redpajama_v2_doc = ViewTagger(
    "redpajama_v2_doc",
    dict.fromkeys(DOCUMENT_SIGNALS, "document"),
    _shipped_lists,
    meanings=DOCUMENT_SIGNALS,
    reads=("text", "metadata"),
    decimals=DECIMALS,
    files=(f"{BAD_WORDS}*.txt", f"{STOP_WORDS}*.txt", DOMAINS, UT1.format("*")),
    load=_with_lists,
    version=2,
)
redpajama_v2_lines = ViewTagger(
    "redpajama_v2_lines",
    dict.fromkeys(LINE_SIGNALS, "spans"),
    _line_signals,
    version=2,
    meanings=LINE_SIGNALS,
    decimals=DECIMALS,
)
redpajama_v2_ccnet = ViewTagger(
    "redpajama_v2_ccnet",
    dict.fromkeys(CCNET_SIGNALS, "document"),
    _ccnet_fields,
    meanings=CCNET_SIGNALS,
    reads=("text", "metadata"),
    decimals=DECIMALS,
)
TAGGERS = (redpajama_v2_doc, redpajama_v2_lines, redpajama_v2_ccnet)
