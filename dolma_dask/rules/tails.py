"""Tails: the end of a signal's distribution that thresholds cut."""

from collections.abc import Mapping
from typing import Literal, cast, get_args

from dolma_dask.errors import UsageError
from dolma_dask.rules.signal_names import one_signal, short_name

Tail = Literal["lower", "upper", "both"]

KNOWN_TAILS: Mapping[str, Tail] = {
    "rps_doc_word_count": "lower",
    "ccnet_nlines": "lower",
    "ccnet_length": "lower",
    "ccnet_language_score": "lower",
    "ccnet_perplexity": "upper",
    "rps_doc_stop_word_fraction": "lower",
    "rps_doc_frac_no_alph_words": "upper",
    "rps_doc_ldnoobw_words": "upper",
    "rps_doc_frac_chars_dupe_10grams": "upper",
    "rps_doc_frac_chars_dupe_5grams": "upper",
    "rps_doc_frac_unique_words": "both",
    "rps_doc_unigram_entropy": "both",
    "metadata.nlines": "lower",
    "metadata.length": "lower",
    "metadata.language_score": "lower",
    "number_of_words": "lower",
    "number_of_lines": "lower",
    "number_of_characters": "lower",
    "language_identification": "lower",
    "perplexity": "upper",
    "stop_words": "lower",
    "special_characters": "upper",
    "flagged_words": "upper",
    "words_per_line_mean": "lower",
    "short_line_ratio": "upper",
    "character_repetition10": "upper",
    "character_repetition5": "upper",
    "word_repetition": "both",
    "unigram_entropy": "both",
    "lines_end_in_punct": "lower",
}
"""End of a signal's distribution that is cut, in the LUMI chain over RedPajama-V2 signals, under the names of the signals, of its metrics and of the fields of the
documents."""


def tails_of(signals: list[str], tails: Mapping[str, str] | None) -> dict[str, Tail]:
    """Return the tail of each signal: as requested for it or for its short name, else as known, else both."""
    requested = {
        one_signal("tails: no signal is called", name, signals): _check_tail(name, tail)
        for name, tail in (tails or {}).items()
    }
    return {**{name: _known_tail(name) for name in signals}, **requested}


def _known_tail(name: str) -> Tail:
    metric = name.partition("(")[0]  # without the lengths of words
    return KNOWN_TAILS.get(metric) or KNOWN_TAILS.get(short_name(name), "both")


def _check_tail(name: str, tail: str) -> Tail:
    if tail not in get_args(Tail):
        raise UsageError(f"tails: {name!r} has {tail!r}; expected lower, upper or both.", name=name)
    return cast(Tail, tail)
