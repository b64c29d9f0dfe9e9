"""SHA-1 in lanes, for every length and any mix of them."""

import hashlib
import random

import numpy as np

from dolma_dask.text.joined import MARGIN
from dolma_dask.text.sha1 import LANES, sha1_words

DATA = random.Random(3).randbytes(5000)


def hashes_of(spans):
    begins, ends = (np.array(column, np.int64) for column in zip(*spans, strict=True))
    return sha1_words(np.frombuffer(DATA + bytes(MARGIN), np.uint8), begins, ends).tolist()


def expected(spans):
    digests = (hashlib.sha1(DATA[begin:end]).digest() for begin, end in spans)
    return [int.from_bytes(digest[:8], "little") for digest in digests]


def test_every_length():
    spans = [(at, at + size) for size in range(1001) for at in [size % 7]]
    assert hashes_of(spans) == expected(spans)


def test_any_number_of_strings():
    for count in [1, 2, LANES - 1, LANES, LANES + 1, 3 * LANES]:
        spans = [(k, 60 + 2 * k) for k in range(count)]
        assert hashes_of(spans) == expected(spans)
    assert sha1_words(np.zeros(MARGIN, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)).size == 0


def test_one_long_string_among_short_ones():
    spans = [(0, 5000), *((k, k + 3) for k in range(100)), (4, 5000), (0, 0), (0, 2000)]
    assert hashes_of(spans) == expected(spans)


def test_bytes_behind_a_string_do_not_matter():
    for size in [0, 1, 54, 55, 56, 63, 64, 65, 119, 120]:
        text = DATA[:size]
        answers = {
            sha1_words(
                np.frombuffer(text + fill * MARGIN, np.uint8), np.zeros(1, np.int64), np.array([size])
            ).item()
            for fill in (b"\x00", b"\xff")
        }
        assert answers == {int.from_bytes(hashlib.sha1(text).digest()[:8], "little")}
