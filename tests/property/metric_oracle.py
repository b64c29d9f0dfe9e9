"""The metrics of the LUMI chain in plain Python, from the published form of a document's signals."""

from typing import Any

MEAN_WORD = {"en": 5.16533, "de": 6.4507, "fr": 5.44505, "it": 5.54443, "es": 5.25742}

OF_DOCUMENTS = {
    "number_of_words": "rps_doc_word_count",
    "number_of_lines": "ccnet_nlines",
    "number_of_characters": "ccnet_length",
    "language_identification": "ccnet_language_score",
    "perplexity": "ccnet_perplexity",
    "stop_words": "rps_doc_stop_word_fraction",
    "special_characters": "rps_doc_frac_no_alph_words",
    "flagged_words": "rps_doc_ldnoobw_words",
    "character_repetition10": "rps_doc_frac_chars_dupe_10grams",
    "character_repetition5": "rps_doc_frac_chars_dupe_5grams",
    "word_repetition": "rps_doc_frac_unique_words",
    "unigram_entropy": "rps_doc_unigram_entropy",
}

Signals = dict[str, list[Any] | None]


def metrics(signals: Signals, language: str | None) -> dict[str, float | None]:
    """Return all metrics of a document with signals ``{name: [[start, end, score], ...]}``."""
    found = {name: _score(signals, signal) for name, signal in OF_DOCUMENTS.items()}
    lines = found["number_of_lines"]
    words = _scores(signals, "rps_lines_num_words")
    ends = _scores(signals, "rps_lines_ending_with_terminal_punctution_mark")
    found["words_per_line_mean"] = sum(words) / len(words) if words else None
    short, marked = None, None
    if words and lines and language is not None:
        short = sum(1 for count in words if count < 100 / MEAN_WORD[language]) / lines
    if ends and lines:
        marked = sum(1 for end in ends if end == 1) / lines
    return found | {"short_line_ratio": short, "lines_end_in_punct": marked}


def _scores(signals: Signals, name: str) -> list[float]:
    return [score for _, _, score in signals.get(name) or [] if score is not None]


def _score(signals: Signals, name: str) -> float | None:
    return next(iter(_scores(signals, name)), None)
