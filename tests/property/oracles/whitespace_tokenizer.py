"""Pieces between tokens."""

import regex


def whitespace_tokenizer(text):
    return {"length": float(len(regex.split(r"\w+|[^\w\s]+", text)))}


ORACLES = {"whitespace_tokenizer_v1": whitespace_tokenizer}
