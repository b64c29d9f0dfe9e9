"""Signatures of the published schemes, in MB of UTF-8 text per CPU-second: ours, and beside them what they are defined by, in turn.

Run ``python -m benchmarks.bench_minhash_redpajama [--megabytes 200] [--runs 3] [--check]``; four minutes. The texts are the benchmarks' corpus, repeated. RedPajama-V2's
recipe is written as its pipeline has it: str methods, a set of joined 13-grams, hashlib for each, one NumPy product for a text. datasketch is the
installed package, `update_batch` for each text. ``--check`` ends with status 1 where ours is not 3.5 times as fast.
"""

import argparse
import hashlib
import json
import re
import string
import struct
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence

import datasketch
import numpy as np
import pyarrow as pa

from benchmarks.corpus import default_origin, original_lines
from dolma_dask.io.stream import BLOCK_BYTES
from dolma_dask.minhash.published import PRIME, mersenne_draws
from dolma_dask.minhash.schemes import MinHash
from dolma_dask.text.joined import characters, cut_texts, joined_words
from dolma_dask.text.normalization import normalised_words
from dolma_dask.text.sha1 import sha1_words

GOAL = 3.5
"""Times the speed of the recipe in plain Python and NumPy."""

DATASKETCH_SHARE = 0.2
"""Share of the texts that datasketch takes: a few, so that it ends."""

PUNCTUATION = str.maketrans("", "", string.punctuation)
HIGHEST = np.uint64((1 << 32) - 1)

Sign = Callable[[Sequence[str], pa.LargeStringArray], object]


def by_hashlib(texts: Sequence[str], _: pa.LargeStringArray) -> list[np.ndarray | None]:
    a, b = mersenne_draws(42, 128)
    return [hashlib_signature(text, a, b) for text in texts]


def hashlib_signature(text: str, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    lowered = text.translate(PUNCTUATION).lower().strip()
    words = unicodedata.normalize("NFD", re.sub(r"\s+", " ", lowered)).split()
    if len(words) < 13:
        return None
    shingles = {" ".join(words[at : at + 13]).encode() for at in range(len(words) - 12)}
    sha1, unpack = hashlib.sha1, struct.unpack
    hashes = np.array([unpack("<I", sha1(shingle).digest()[:4])[0] for shingle in shingles], np.uint64)
    return ((hashes[:, None] * a + b) % PRIME & HIGHEST).min(axis=0).astype(np.uint32)


def ours(minhash: MinHash) -> Sign:
    def sign(_: Sequence[str], column: pa.LargeStringArray) -> np.ndarray:
        return np.concatenate([minhash.sign(block).values for block in cut_texts(column, BLOCK_BYTES)])

    return sign


def by_datasketch(unit: str, scheme: str) -> Sign:
    glue = " " if unit == "word" else ""

    def sign(texts: Sequence[str], _: pa.LargeStringArray) -> np.ndarray:
        first = datasketch.MinHash(128, seed=1, scheme=scheme)
        values = np.zeros((len(texts), 128), np.uint32)
        for row, text in enumerate(texts):
            tokens = text.split() if unit == "word" else text
            spans = range(max(1, len(tokens) - 4))
            sketch = datasketch.MinHash(128, seed=1, scheme=scheme, permutations=first.permutations)
            sketch.update_batch(glue.join(tokens[at : at + 5]).encode() for at in spans)
            values[row] = sketch.hashvalues
        return values

    return sign


def cpu_of(sign: Sign, texts: Sequence[str], column: pa.LargeStringArray) -> float:
    start = time.process_time()
    sign(texts, column)
    return time.process_time() - start


def compare(name: str, theirs: Sign, own: Sign, texts: Sequence[str], runs: int) -> float:
    """Run both in turn, print the medians, and return how many times as fast ours is."""
    column = pa.array(texts, pa.large_string())
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    own(texts[:10], column.slice(0, 10))
    seconds = np.array([[cpu_of(sign, texts, column) for sign in (theirs, own)] for _ in range(runs)])
    slow, fast = np.median(seconds, axis=0)
    ratios = seconds[:, 0] / seconds[:, 1]
    print(
        f"{name:30} {megabytes:6.0f} MB {megabytes / slow:8.1f} {megabytes / fast:8.1f} MB/CPU-s, {slow / fast:5.1f} x ({ratios.min():.1f} to {ratios.max():.1f})",
        flush=True,
    )
    return float(np.median(ratios))


def parts_of(texts: Sequence[str]) -> None:
    """Print what the parts of RedPajama-V2's signatures cost by themselves."""
    column = pa.array(texts, pa.large_string())
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    parts: dict[str, Callable[[pa.LargeStringArray], object]] = {
        "normalised words": normalised_words,
        "normalised words, SHA-1": hash_13grams,
        "words joined": joined_words,
        "characters": characters,
    }
    for name, part in parts.items():
        seconds = min(time_of(part, column) for _ in range(5))
        print(f"{name:30} {megabytes:6.0f} MB {'':8} {megabytes / seconds:8.0f} MB/CPU-s")


def time_of(part: Callable[[pa.LargeStringArray], object], column: pa.LargeStringArray) -> float:
    start = time.process_time()
    for piece in cut_texts(column, 1 << 18):
        part(piece)
    return time.process_time() - start


def hash_13grams(piece: pa.LargeStringArray) -> None:
    tokens = normalised_words(piece)
    starts = tokens.starts.astype(np.int64)
    sha1_words(tokens.data, starts[:-13], starts[13:] - 1)


def repeated(megabytes: float) -> Iterator[str]:
    """Yield the corpus again and again, up to so many MB."""
    originals = [json.loads(line)["text"] for line in original_lines(default_origin())]
    size = sum(len(text.encode()) for text in originals) / 1e6
    for _ in range(max(1, round(megabytes / size))):
        yield from originals


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    texts = list(repeated(options.megabytes))
    few = texts[: int(DATASKETCH_SHARE * len(texts))]
    published = MinHash("redpajama_v2", ngram=13, seed=42)
    print(f"{'':30} {'':9} {'theirs':>8} {'ours':>8}")
    ratio = compare("redpajama_v2", by_hashlib, ours(published), texts, options.runs)
    for unit in ("word", "char"):
        for scheme, name in (("legacy", "datasketch_legacy"), ("affine32", "datasketch")):
            minhash = MinHash(name, ngram=5, unit=unit, seed=1)
            share = few if unit == "word" else few[: len(few) // 4]
            compare(f"{name}, 5 {unit}s", by_datasketch(unit, scheme), ours(minhash), share, options.runs)
    parts_of(few)
    return int(options.check and ratio < GOAL)


if __name__ == "__main__":
    sys.exit(main())
