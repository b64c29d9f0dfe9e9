"""The published taggers again, in plain Python: slow, and as close to their definitions as can be."""

import json
import re
from collections import Counter
from pathlib import Path
from statistics import median

import redpajama_oracle
import regex
from hypothesis import strategies as st

REQUIRED = {"the", "be", "to", "of", "and", "that", "have", "with"}


def char_length(text):
    return {"length": float(len(text))}


def whitespace_tokenizer(text):
    return {"length": float(len(regex.split(r"\w+|[^\w\s]+", text)))}


def gopher(text):
    words = text.split()
    lines = re.split("\n+", text)
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


STOP_WORDS = {
    language: frozenset(listed)
    for language, listed in json.loads(
        (Path(__file__).parents[2] / "dolma_dask/taggers/stop_words.json").read_text(encoding="utf-8")
    ).items()
}


def redpajama(text, metadata="{}"):
    language = json.loads(metadata).get("language")
    found = redpajama_oracle.rule_signals(text, STOP_WORDS.get(language))
    scores = {name: spans[0][2] for name, spans in found.items() if name.startswith("rps_doc_")}
    return {name: None if score is None else float(score) for name, score in scores.items()}


def redpajama_lines(text):
    found = redpajama_oracle.line_signals(redpajama_oracle.split_lines(text))
    if not text:
        found["rps_lines_start_with_bulletpoint"] = None
    return {
        name: spans and [{"start": start, "end": end, "score": float(score)} for start, end, score in spans]
        for name, spans in found.items()
    }


def redpajama_ccnet(text, metadata="{}"):
    names = (
        "length",
        "original_length",
        "nlines",
        "original_nlines",
        "language_score",
        "perplexity",
        "bucket",
    )
    record = dict.fromkeys(names) | json.loads(metadata)
    signals = redpajama_oracle.ccnet_signals(record, len(text))
    return {name: spans[0][2] for name, spans in signals.items()}


ORACLES = {
    "char_length_v1": char_length,
    "gopher_v2": gopher,
    "redpajama_v2_doc": redpajama,
    "redpajama_v2_ccnet": redpajama_ccnet,
    "redpajama_v2_lines": redpajama_lines,
    "whitespace_tokenizer_v1": whitespace_tokenizer,
}

SPACES = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\u00a0\u1680\u2000\u2005\u200a\u2028\u2029\u202f\u205f\u3000"
NEAR_SPACES = "\x08\x0e\x1b\x84\u00a1\u1681\u180e\u200b\u200c\u200d\u2027\u202e\u2060\u3001\ufeff"
MARKS = "\u0300\u0301\u05bf\u093f\u094d\u0e33\u20dd\ufe0f\U0001d165"
ODD = "#…*-_0٣½Ⅷ²〇\x00\x7fİıßﬁǅ\u0378\ue000\U000e0001\U0010ffff"

characters = st.one_of(
    st.sampled_from(SPACES),
    st.sampled_from(NEAR_SPACES),
    st.sampled_from(MARKS),
    st.sampled_from(ODD),
    st.sampled_from("abcXYZ019.,;#"),
    st.characters(max_codepoint=0x7F),
    st.characters(max_codepoint=0x3FFF, exclude_categories=["Cs"]),
    st.characters(exclude_categories=["Cs"]),
)
wild = st.one_of(st.text(characters, max_size=300), st.text(st.sampled_from("é\u3000あ…a #\n"), max_size=200))
words = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "the",
            "be",
            "#1",
            "…",
            "-",
            "*",
            "Привет",
            "日本語",
            "x" * 63,
            "é" * 32,
            "to\x00",
            "w" * 300,
        ]
    ),
    st.text(st.sampled_from("ab"), min_size=1, max_size=3),
)
gaps = st.one_of(
    st.sampled_from([" ", "\n", "\n\n", "\r\n", "\u3000", " \u00a0 "]),
    st.text(st.sampled_from(SPACES), min_size=1),
)


@st.composite
def repetitive(draw):
    """Text of few different words and lines, so that n-grams and lines repeat and tie."""
    vocabulary = draw(st.lists(words, min_size=1, max_size=4))
    separators = draw(st.lists(gaps, min_size=1, max_size=3))
    choices = draw(st.lists(st.tuples(st.sampled_from(vocabulary), st.sampled_from(separators)), max_size=60))
    return "".join(word + gap for word, gap in choices)


blank = st.lists(st.sampled_from([" ", "\t", "\n", "\n\n", "\r\n", "\u3000", " \n "]), max_size=12).map(
    "".join
)
"""White space alone, in which lines repeat."""

tokens = st.one_of(
    st.sampled_from(
        [
            "lorem",
            "ipsum",
            "Lorem",
            "x-javascript",
            "javascript",
            "The",
            "the",
            "ΑΣ",
            "über",
            "½",
            "{}",
            "A1",
            "Ⓐ",
            "ǅ",
            "...",
        ]
    ),
    st.text(st.sampled_from("aAbé.!?#…{}_\"'-•–”Ⅷ1٣ΣΑ한\u0301\u0323"), min_size=1, max_size=4),
    st.builds(
        lambda unit, times: unit * times,
        st.sampled_from(["=", ".", "a", "Z", "é", "字", "。", "É", "!?", "a.", "Ⓐ"]),
        st.integers(1, 90),
    ),
)
"""Tokens of one kind of character and of several, as long as a window of a kernel and longer."""
tokenised = st.lists(st.tuples(tokens, st.one_of(gaps, st.just(" "))), max_size=40).map(
    lambda pairs: "".join(token + gap for token, gap in pairs)
)

texts = st.one_of(
    wild, repetitive(), blank, tokenised, st.builds("".join, st.lists(repetitive() | wild, max_size=3))
)
