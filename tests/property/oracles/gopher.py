"""Signals of the Gopher paper."""

import re
from collections import Counter
from statistics import median

REQUIRED = {"the", "be", "to", "of", "and", "that", "have", "with"}


def gopher_v2(text):
    return gopher(text, re.split("\n+", text))


def gopher_v1(text):
    return gopher(text, text.split("\n"))


def gopher(text, lines):
    words = text.split()
    copies = Counter(lines)
    chars = sum(map(len, words))
    result = _ngrams(words, chars)
    result |= {
        "character_count": len(text),
        "word_count": len(words),
        "median_word_length": median(map(len, words)) if words else 0,
        "symbol_to_word_ratio": _share(sum("#" in word or "…" in word for word in words), words),
        "fraction_of_words_with_alpha_character": _share(
            sum(any(char.isalpha() for char in word) for word in words), words
        ),
        "required_word_count": sum(word in REQUIRED for word in words),
        "fraction_of_lines_starting_with_bullet_point": _share(
            sum(line.startswith(("*", "-")) for line in lines), lines
        ),
        "fraction_of_lines_ending_with_ellipsis": _share(sum(line.endswith("…") for line in lines), lines),
        "fraction_of_duplicate_lines": _share(sum(n for n in copies.values() if n > 1), lines),
        "fraction_of_characters_in_duplicate_lines": (
            sum(n * len(line) for line, n in copies.items() if n > 1) / max(chars, 1)
        ),
    }
    return {name: None if value is None else float(value) for name, value in result.items()}


def _share(count, of):
    return count / len(of) if of else 0.0


def _ngrams(words, chars):
    result = {}
    for n in (2, 3, 4):
        counts = Counter(zip(*(words[start:] for start in range(n)), strict=False))
        name = f"fraction_of_characters_in_most_common_{n}grams"
        result[name] = None
        if counts:
            ngram, count = counts.most_common(1)[0]
            result[name] = count * sum(map(len, ngram)) / chars
    for n in range(5, 11):
        counts = Counter(zip(*(words[start:] for start in range(n)), strict=False))
        weights = {ngram: count * sum(map(len, ngram)) for ngram, count in counts.items()}
        name = f"fraction_of_characters_in_duplicate_{n}grams"
        result[name] = None
        if counts:
            repeated = sum(weight for ngram, weight in weights.items() if counts[ngram] > 1)
            result[name] = repeated / sum(weights.values())
    return result


ORACLES = {"gopher_v1": gopher_v1, "gopher_v2": gopher_v2}
