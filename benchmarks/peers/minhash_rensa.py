"""Signatures by rensa from texts in memory: word 5-grams as strings, 128 values. Prints MB of text and CPU-seconds.

``each`` (the default) makes an R-MinHash per text; ``matrix`` signs 2,000 texts a call; ``c`` makes a C-MinHash per text.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rensa import CMinHash, RMinHash

NGRAM = 5
PERMUTATIONS = 128
BATCH = 2_000


def shingles(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[at : at + NGRAM]) for at in range(max(len(words) - NGRAM + 1, 1))]


def sign_each(texts: list[str], kind: type = RMinHash) -> None:
    for text in texts:
        signature = kind(PERMUTATIONS, 42)
        signature.update(shingles(text))
        signature.digest()


def sign_matrix(texts: list[str]) -> None:
    for at in range(0, len(texts), BATCH):
        RMinHash.digest_matrix_from_token_sets(
            [shingles(text) for text in texts[at : at + BATCH]], PERMUTATIONS, 42
        )


WAYS: dict[str, Callable[[list[str]], None]] = {
    "each": sign_each,
    "matrix": sign_matrix,
    "c": lambda texts: sign_each(texts, CMinHash),
}


def main(path: str, way: str = "each") -> None:
    with Path(path).open(encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    start = time.process_time()
    WAYS[way](texts)
    seconds = time.process_time() - start
    print(sum(len(text.encode()) for text in texts) / 1e6, seconds)


main(*sys.argv[1:])
