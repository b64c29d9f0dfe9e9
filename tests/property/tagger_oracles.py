"""The oracles of all families, and texts that break careless code."""

import importlib
from pathlib import Path

from hypothesis import strategies as st

_MODULES = [
    importlib.import_module(f"oracles.{path.stem}")
    for path in sorted((Path(__file__).parent / "oracles").glob("*.py"))
    if path.stem != "__init__"
]

ORACLES = {name: oracle for module in _MODULES for name, oracle in module.ORACLES.items()}
"""What each tagger returns for a text and the other columns that it reads."""

METADATA = {name: drawn for module in _MODULES for name, drawn in getattr(module, "METADATA", {}).items()}
"""Strategies for the metadata of those that look for more than a language."""

TEXTS = {name: drawn for module in _MODULES for name, drawn in getattr(module, "TEXTS", {}).items()}
"""Strategies for texts in which those find much that find little in any."""

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
