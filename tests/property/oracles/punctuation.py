"""Paragraphs of punctuation."""

import regex

from oracles.length import paragraphs

PATTERN = regex.compile(
    r"([[:punct:]]|\s|[\U0001f300-\U0001f64f\U0001f680-\U0001f6ff\u2600-\u26ff\u2700-\u27bf])+"
)


def not_alphanum(text):
    spans = [
        {"start": start, "end": start + len(piece), "score": 1.0}
        for start, piece in paragraphs(text)
        if PATTERN.fullmatch(piece)
    ]
    return {"all_punct": spans or [{"start": 0, "end": len(text), "score": 0.0}]}


ORACLES = {"not_alphanum_paragraph_v1": not_alphanum}
