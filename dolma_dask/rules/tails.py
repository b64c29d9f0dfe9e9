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

OTHER_TAILS: Mapping[str, Tail] = {
    **dict.fromkeys(
        (
            *("length", "character_count", "word_count", "required_word_count", "ccnet_original_length", "ccnet_original_nlines"),
            *("rps_doc_num_sentences", "fraction_of_words_with_alpha_character"),
        ),
        "lower",
    ),
    **dict.fromkeys(
        (
            *("symbol_to_word_ratio", "rps_doc_symbol_to_word_ratio", "rps_doc_curly_bracket", "rps_doc_lorem_ipsum"),
            *("rps_doc_frac_all_caps_words", "rps_doc_frac_lines_end_with_ellipsis", "ccnet_bucket", "cluster_size", "similarity"),
            *("fraction_of_lines_starting_with_bullet_point", "fraction_of_lines_ending_with_ellipsis"),
            *("fraction_of_duplicate_lines", "fraction_of_characters_in_duplicate_lines"),
            *(f"fraction_of_characters_in_most_common_{n}grams" for n in (2, 3, 4)),
            *(f"fraction_of_characters_in_duplicate_{n}grams" for n in range(5, 11)),
            *(f"rps_doc_frac_chars_top_{n}gram" for n in (2, 3, 4)),
            *(f"rps_doc_frac_chars_dupe_{n}grams" for n in range(6, 10)),
        ),
        "upper",
    ),
}  # fmt: skip
"""The same of other signals of the built-in taggers, by what the signal says: long texts are no worse than others, and hold most of the text; repetition is bad from some share on.
Signals that have a good middle, such as lengths of words, are in neither."""


def tails_of(signals: list[str], tails: Mapping[str, str] | None) -> dict[str, Tail]:
    """Return the tail of each signal: as requested for it or for its short name, else as known, else both."""
    requested = {
        one_signal("tails: no signal is called", name, signals): _check_tail(name, tail)
        for name, tail in (tails or {}).items()
    }
    return {**{name: _known_tail(name) for name in signals}, **requested}


def _known_tail(name: str) -> Tail:
    metric, short = name.partition("(")[0], short_name(name)  # the metric without the lengths of words
    return KNOWN_TAILS.get(metric) or KNOWN_TAILS.get(short) or OTHER_TAILS.get(short, "both")


CUTS: Mapping[Tail, str] = {"lower": "small values", "upper": "large values", "both": "both ends"}
"""Values that a tail cuts, in words for a table."""


def _check_tail(name: str, tail: str) -> Tail:
    if tail not in get_args(Tail):
        raise UsageError(f"tails: {name!r} has {tail!r}; expected lower, upper or both.", name=name)
    return cast(Tail, tail)
