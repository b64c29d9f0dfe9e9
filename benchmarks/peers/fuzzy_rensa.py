"""Fuzzy duplicates by rensa: word 5-grams as strings, R-MinHash of 128 values, 16 bands of 8 rows, keep the first.

``matrix`` (the default) signs 2,000 documents a call and asks the index for bands that were there before; ``pairs`` is the route of rensa's own
documentation, which compares signatures too.
"""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
from rensa import RMinHash, RMinHashDeduplicator, RMinHashLSH

NGRAM = 5
PERMUTATIONS = 128
BANDS = 16
BATCH = 2_000


def documents(folder: str) -> Iterator[tuple[str, str]]:
    for path in sorted(Path(folder).rglob("*.jsonl.gz")):
        with gzip.open(path) as lines:
            for line in lines:
                document = orjson.loads(line)
                yield document["id"], document["text"]


def shingles(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[at : at + NGRAM]) for at in range(max(len(words) - NGRAM + 1, 1))]


def batches(folder: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    ids: list[str] = []
    rows: list[list[str]] = []
    for name, text in documents(folder):
        ids.append(name)
        rows.append(shingles(text))
        if len(ids) == BATCH:
            yield ids, rows
            ids, rows = [], []
    yield ids, rows


def by_matrix(folder: str) -> Iterator[str]:
    """Yield the ids that share a band with any other document, as rensa's flags say; both of a pair in one call."""
    index, at = RMinHashLSH(0.8, PERMUTATIONS, BANDS), 0
    for ids, rows in batches(folder):
        matrix = RMinHash.digest_matrix_from_token_sets(rows, PERMUTATIONS, 42)
        flags = index.insert_matrix_and_query_duplicate_flags(matrix, at)
        at += len(ids)
        yield from (name for name, is_duplicate in zip(ids, flags, strict=True) if is_duplicate)


def by_pairs(folder: str) -> Iterator[str]:
    """Yield the ids that are similar to an earlier one."""
    seen = RMinHashDeduplicator(0.8, PERMUTATIONS, True, BANDS)
    for ids, rows in batches(folder):
        is_new = seen.add_pairs(zip(ids, rows, strict=True))
        yield from (name for name, is_first in zip(ids, is_new, strict=True) if not is_first)


if __name__ == "__main__":
    found = by_pairs if sys.argv[3:] == ["pairs"] else by_matrix
    Path(sys.argv[2]).write_text("".join(f"{name}\n" for name in found(sys.argv[1])))
