"""Which end of a signal's distribution is cut: too few words are bad, many are not.

The table is that of the LUMI chain over RedPajama-V2 signals (its quality filter: ``>`` for lower bounds, ``<`` for upper ones), under the
names of the signals and of the metrics that it makes of them.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from dolma_dask.errors import UsageError

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


def short_name(signal: str) -> str:
    """Return the last part of an attribute key or of a field of the metadata."""
    return signal.removeprefix("metadata.").rpartition("__")[2]


def short_names(signals: list[str]) -> dict[str, str]:
    """Return how tables call each signal: by its short name, where no other has it too."""
    short = {signal: short_name(signal) for signal in signals}
    return {
        signal: name if list(short.values()).count(name) == 1 else signal for signal, name in short.items()
    }


def tails_of(signals: list[str], tails: Mapping[str, str] | None) -> dict[str, Tail]:
    """Return the tail of each signal: what was asked for it or for its short name, else what is known, else both.

    Raises
    ------
    UsageError
        A tail is none of "lower", "upper" and "both", or its signal is not among `signals`.
    """
    asked = {_one_signal(name, signals): _check(name, tail) for name, tail in (tails or {}).items()}
    return {name: asked.get(name, KNOWN_TAILS.get(short_name(name), "both")) for name in signals}


def _one_signal(name: str, signals: list[str]) -> str:
    found = matching(name, signals)
    if len(found) != 1:
        what = f"is short for {', '.join(found)}" if found else "is none of the signals"
        raise UsageError(f"tails: {name!r} {what}; expected one of {', '.join(signals)}.", name=name)
    return found[0]


def matching(name: str, signals: list[str]) -> list[str]:
    """Return the signals that a name stands for: itself, else those that end in it."""
    if name in signals:
        return [name]
    return [signal for signal in signals if signal.endswith((f"__{name}", f"metadata.{name}"))]


def _check(name: str, tail: str) -> Tail:
    for known in get_args(Tail):
        if tail == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"tails: {name!r} has {tail!r}; expected lower, upper or both.", name=name)
