"""Bloom filters of keys: written in pieces beside an exchange, and read, those of the Dolma toolkit too."""
