"""Windows and words of bytes, at every place of a buffer and beyond its end."""

import random

import numpy as np
import pytest

from dolma_dask.text import bits

DATA = np.frombuffer(random.Random(1).randbytes(200), np.uint8)


@pytest.mark.parametrize("first, last", [(0, 255), (0x80, 0xBF), (10, 10), (0xC0, 0xFF), (0, 0)])
def test_range_bits_compare_each_byte(first, last):
    for at in range(DATA.size):
        expected = sum(1 << k for k, byte in enumerate(DATA[at : at + 64].tolist()) if first <= byte <= last)
        assert int(bits.range_bits(DATA, at, np.uint8(first), np.uint8(last))) == expected, at


def test_range_bits_of_the_smallest_buffer():
    data = DATA[:64]
    assert int(bits.range_bits(data, 63, np.uint8(0), np.uint8(255))) == 1


def test_load8_reads_little_endian_and_no_further_than_asked():
    for at in range(DATA.size):
        for count in range(1, 9):
            assert int(bits.load8(DATA, at, count)) == int.from_bytes(bytes(DATA[at : at + count]), "little")


def test_low_bits():
    for count in (-5, 0, 1, 31, 63, 64, 65, 1000):
        assert int(bits.low_bits(count)) == (1 << min(max(count, 0), 64)) - 1


def test_hash_depends_on_the_bytes_alone():
    rng = random.Random(2)
    seen = {}
    for length in [0, 1, 2, 7, 8, 9, 15, 16, 17, 64, 100]:
        for _ in range(40):
            content = bytes(rng.choices(b"ab\x00", k=length))
            hashes = set()
            for before in (0, 3, 70):
                data = np.frombuffer(
                    rng.randbytes(before) + content + rng.randbytes(64 if before else 0), np.uint8
                )
                data = data if data.size >= 64 else np.r_[data, np.zeros(64, np.uint8)]
                hashes.add(int(bits.hash_bytes(data, before, before + length)))
            assert len(hashes) == 1
            seen.setdefault(hashes.pop(), set()).add(content)
    assert all(len(contents) == 1 for contents in seen.values())


def test_hash_spreads_over_low_and_high_bits():
    texts = [f"{number}".encode().ljust(64) for number in range(1000, 5000)]
    hashes = np.array([bits.hash_bytes(np.frombuffer(text, np.uint8), 0, 4) for text in texts], np.uint64)
    for shift in (0, 20, 52):
        buckets = np.bincount((hashes >> np.uint64(shift)).astype(np.int64) & 0xFFF, minlength=4096)
        assert buckets.max() < 12
