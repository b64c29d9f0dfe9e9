"""The metrics of the LUMI chain over RedPajama-V2: values by name, computed from signals whenever they are read, so that nothing is stored for them.

A name that no column has may be that of a metric: wherever signals are named, `find_metric` gives what is computed in its place. Signals are found by
their short names, whether they were attached as published or computed by ``tag``. Ratios divide by CCNet's number of lines. Null are metrics of documents that
lack a signal, and those of lines where there are no lines.

Cost: 10 ns for each line of a document.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import ExpressionError, UsageError
from dolma_dask.rules.values import Arithmetic, Columns, Name, Operand, Value, doubles, endings
from dolma_dask.text.columns import validity

WORD_LENGTHS = {"en": 5.16533, "de": 6.4507, "fr": 5.44505, "it": 5.54443, "es": 5.25742}
"""Mean length of a word of a language in code points (``filter.py`` of the chain)."""

SHORT_LINE = 100
"""Code points, by the mean length of words, of a line that is not short."""

_LANGUAGE = Name("metadata.language")
_LINES = Name("ccnet_nlines")
_WORDS_OF_LINES = Name("rps_lines_num_words")
_ENDS_OF_LINES = Name("rps_lines_ending_with_terminal_punctution_mark")


class ScoredLines(Struct, frozen=True):
    """Lines of some documents that have a score (n,)."""

    rows: npt.NDArray[np.int64]  # (n,) their documents, ascending
    scores: npt.NDArray[np.float64]  # (n,)
    numbers: npt.NDArray[np.int64]  # (documents,) lines of each

    def among(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Count the lines that are chosen (n,) in each document (documents,)."""
        return np.asarray(np.bincount(self.rows, chosen, len(self.numbers)), np.float64)


class OfLines(Value, Struct, frozen=True):
    """A number of each document, from the scores of its lines; missing where there are no lines."""

    column: Value  # a list of spans for each row

    @property
    def lists(self) -> frozenset[str]:
        return self.column.names

    def evaluate(self, columns: Columns) -> Operand:
        lines = _lines_of(self.column.evaluate(columns))
        found = self.of_lines(lines, columns)
        return Operand(pa.array(found, mask=(lines.numbers == 0) | np.isnan(found)), "number", f"`{self}`")

    def of_lines(self, lines: ScoredLines, columns: Columns) -> npt.NDArray[np.float64]:
        """Return the numbers (documents,); NaN is missing."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.column})"


class MeanOfLines(OfLines, frozen=True):
    """Mean score of the lines."""

    def of_lines(self, lines: ScoredLines, columns: Columns) -> npt.NDArray[np.float64]:
        sums = np.bincount(lines.rows, lines.scores, len(lines.numbers))
        return sums / np.maximum(lines.numbers, 1)


class MarkedLines(OfLines, frozen=True):
    """Number of lines whose score is 1."""

    def of_lines(self, lines: ScoredLines, columns: Columns) -> npt.NDArray[np.float64]:
        return lines.among(lines.scores == 1)


class ShortLines(OfLines, frozen=True):
    """Number of lines with fewer words than make `SHORT_LINE` in the language of the document."""

    language: Value = _LANGUAGE
    lengths: tuple[tuple[str, float], ...] = tuple(sorted(WORD_LENGTHS.items()))  # of words, by language

    def of_lines(self, lines: ScoredLines, columns: Columns) -> npt.NDArray[np.float64]:
        least = self._least(self.language.evaluate(columns))
        return np.where(np.isnan(least), np.nan, lines.among(lines.scores < least[lines.rows]))

    def _least(self, languages: Operand) -> npt.NDArray[np.float64]:
        """Return the words of a line that is not short, for each row; NaN without a language."""
        if languages.kind not in ("string", "missing"):
            raise ExpressionError(
                f"{languages.called} is a {languages.kind}; expected a string: the language of the document"
            )
        known = dict(self.lengths)
        encoded = languages.data.dictionary_encode()
        names = [] if languages.kind == "missing" else encoded.dictionary.to_pylist()
        if unknown := [name for name in names if name not in known]:
            raise UsageError(
                f"short_line_ratio: the mean length of a word is not known for {languages.called} {unknown[0]!r}, which documents have; expected one of "
                f"{', '.join(sorted(known))}. Give it in characters, behind the name of the metric: short_line_ratio({unknown[0]}=5.2).",
                language=unknown[0],
            )
        words = np.array([*(SHORT_LINE / known[name] for name in names), np.nan])
        which: npt.NDArray[np.int32] = encoded.indices.fill_null(len(names)).to_numpy(zero_copy_only=False)
        return words[which] if names else np.full(len(which), np.nan)


class Metric(Value, Struct, frozen=True):
    """A computed value that is spelled by its name."""

    name: str
    value: Value

    @property
    def short(self) -> Value:
        """The column, if it is one by another name."""
        return self.value if isinstance(self.value, Name) else self

    def evaluate(self, columns: Columns) -> Operand:
        return Operand(self.value.number(columns), "number", f"metric {self}")

    def __str__(self) -> str:
        return str(Name(self.name))


METRICS: Mapping[str, Value] = {
    "number_of_words": Name("rps_doc_word_count"),
    "number_of_lines": _LINES,
    "number_of_characters": Name("ccnet_length"),
    "language_identification": Name("ccnet_language_score"),
    "perplexity": Name("ccnet_perplexity"),
    "stop_words": Name("rps_doc_stop_word_fraction"),
    "special_characters": Name("rps_doc_frac_no_alph_words"),
    "flagged_words": Name("rps_doc_ldnoobw_words"),
    "words_per_line_mean": MeanOfLines(_WORDS_OF_LINES),
    "short_line_ratio": Arithmetic("/", ShortLines(_WORDS_OF_LINES), _LINES),
    "character_repetition10": Name("rps_doc_frac_chars_dupe_10grams"),
    "character_repetition5": Name("rps_doc_frac_chars_dupe_5grams"),
    "word_repetition": Name("rps_doc_frac_unique_words"),
    "unigram_entropy": Name("rps_doc_unigram_entropy"),
    "lines_end_in_punct": Arithmetic("/", MarkedLines(_ENDS_OF_LINES), _LINES),
}
"""Metrics and what they are of the signals, by their short names, in the order of the chain."""

_WITH_LENGTHS = re.compile(r"short_line_ratio\((.*)\)")


def metric_of(name: str) -> Value | None:
    """Return the metric of a name, of signals by their short names, or None. ``short_line_ratio(nl=5.2)`` also knows the mean length of a Dutch word."""
    if (match := _WITH_LENGTHS.fullmatch(name)) is None:
        return METRICS.get(name)
    lengths = tuple(sorted({**WORD_LENGTHS, **_lengths_in(name, match[1])}.items()))
    return Arithmetic("/", ShortLines(_WORDS_OF_LINES, lengths=lengths), _LINES)


def _lengths_in(name: str, text: str) -> dict[str, float]:
    """Return lengths of words by language from ``nl=5.2, pl=6``."""
    lengths = {}
    for part in text.split(","):
        language, sign, length = (word.strip() for word in part.partition("="))
        try:
            lengths[language] = float(length)
        except ValueError:
            sign = ""
        if not (language and sign and 0 < lengths[language] < float("inf")):
            raise UsageError(
                f"{name}: found {part.strip()!r}; expected LANGUAGE=LENGTH, the mean number of characters of a word, such as short_line_ratio(nl=5.2).",
                name=name,
            )
    return lengths


def metrics_in(names: Collection[str]) -> list[str]:
    """Return the names that are those of metrics, should no column have them."""
    return [name for name in names if metric_of(name) is not None]


def find_metric(name: str, known: Sequence[str]) -> Metric | None:
    """Return the metric of a name that no column has or ends in, over full names of columns that are `known`; None if it is no metric's.

    Raises `ExpressionError`: a signal of the metric is missing, or its short name stands for several columns.
    """
    if endings(name, known) or (value := metric_of(name)) is None:
        return None
    full = {signal: _signal_of(name, signal, known) for signal in value.names - _LANGUAGE.names}
    return Metric(name, value.renamed(full))


def _signal_of(name: str, signal: str, known: Sequence[str]) -> str:
    found = endings(signal, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise ExpressionError(
            f"{name} is made of {signal}, which is short for several columns: {', '.join(found)}; name their set with --attributes",
            name=name,
        )
    raise ExpressionError(
        f"no column is named {Name(name)}, and {signal} is missing, of which the metric of that name is made. Make the signals of RedPajama-V2 "
        "(dolma-dask tag ... --taggers redpajama_v2_doc redpajama_v2_lines redpajama_v2_ccnet), or attach published ones",
        name=name,
    )


def _lines_of(operand: Operand) -> ScoredLines:
    """Return the lines of a column of spans; a score of a whole document is that of its only line."""
    column: Any = operand.data
    count = len(column)
    if operand.kind == "missing":
        return ScoredLines(np.zeros(0, np.int64), np.zeros(0), np.zeros(count, np.int64))
    if pa.types.is_list(column.type):
        offsets = np.asarray(column.offsets).astype(np.int64)
        numbers = np.diff(offsets)
        scores = doubles(column.values.field("score").slice(offsets[0], offsets[-1] - offsets[0]))
    elif operand.kind == "number":
        numbers, scores = np.ones(count, np.int64), doubles(column)
    else:
        raise ExpressionError(f"{operand.called} is a {operand.kind}; expected scores of lines")
    rows = np.repeat(np.arange(count), numbers)
    if column.null_count or scores.null_count:
        scored = validity(column)[rows] & validity(scores)
        rows, scores = rows[scored], scores.filter(pa.array(scored))
        numbers = np.bincount(rows, minlength=count)
    return ScoredLines(rows, scores.to_numpy(zero_copy_only=False), numbers)
