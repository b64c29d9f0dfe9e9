"""Pieces between tokens."""

import regex

from oracles.length import paragraphs, spans


def whitespace_tokenizer(text):
    return {"length": float(len(regex.split(r"\w+|[^\w\s]+", text)))}


def with_paragraphs(text):
    def score(piece):
        return whitespace_tokenizer(piece)["length"]

    return {
        "paragraph": spans(text, score),
        "document": float(sum(score(piece) for _, piece in paragraphs(text))),
    }


ORACLES = {
    "whitespace_tokenizer_v1": whitespace_tokenizer,
    "whitespace_tokenizer_with_paragraphs_v1": with_paragraphs,
}
