"""Tokenizers and the tokens around a document."""
