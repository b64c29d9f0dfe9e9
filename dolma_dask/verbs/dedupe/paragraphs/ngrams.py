"""Keys of the n-grams of words of paragraphs: words by the rules of Unicode (`dolma_dask.text.word_breaks`) without white space, so that how words are set apart makes
no difference.

A key is two polynomials of the words' hashes modulo 2**64, mixed: each word is hashed once, and both roll on. Words are told apart by 64 bits (a false match: one pair
of different words in 2**64), their order by 128.
"""

import numpy as np

from dolma_dask.text.bits import hash_bytes, mix
from dolma_dask.text.kernels import Bools, Bytes, Counts, Int, Words, kernel
from dolma_dask.text.units import is_blank
from dolma_dask.text.word_breaks import Entries, word_stop

_FACTORS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD95)
_FIRST, _SECOND = _FACTORS
_OTHER = np.uint64(0xA0761D6478BD642F)


def powers(n: int) -> tuple[np.uint64, np.uint64]:
    """Return what the hash of a word is multiplied by when it leaves a window of n words."""
    first, second = (np.uint64(pow(int(factor), n, 1 << 64)) for factor in _FACTORS)
    return first, second


@kernel
def find_ngrams(
    data: Bytes, offsets: Counts, n: Int, stride: Int, min_words: Int, skips_short: bool, first_power: np.uint64, second_power: np.uint64,
    space_numbers: Bytes, space_blocks: Bytes, numbers: Bytes, blocks: Bytes, machine: Entries,
    window: Words, items: Counts, is_whole: Bools, high: Words, low: Words,
) -> Int:  # fmt: skip
    """Set how many keys each paragraph has, and write them one after another; returns how many there are in all.

    Paragraph i is ``data[offsets[i]:offsets[i + 1]]``; one with 0 `items` is left out. Of the others the first two n-grams have a key, and then every `stride`-th. With
    fewer than two of them, unless it `skips_short` ones, or with n = 0, a paragraph has one key that is not written (`is_whole`); with fewer than `min_words` words none.
    `window` has room for 2 n words.
    """
    written: Int = 0
    for row in range(items.size):
        if items[row] == 0:
            continue
        first, words, slot, wanted = written, np.int64(0), np.int64(0), np.int64(0)
        one, other = np.uint64(0), np.uint64(0)
        at, end = offsets[row], offsets[row + 1]
        while at < end:
            stop = word_stop(data, at, end, numbers, blocks, machine)
            if is_blank(data, at, stop, space_numbers, space_blocks):
                at = stop
                continue
            if n > 0:
                word = hash_bytes(data, at, stop)
                again = mix(word ^ _OTHER)
                one, other = one * _FIRST + word, other * _SECOND + again
                if words >= n:
                    one -= window[2 * slot] * first_power
                    other -= window[2 * slot + 1] * second_power
                window[2 * slot], window[2 * slot + 1] = word, again
                slot = np.int64(0) if slot + 1 == n else slot + 1
                if words + 1 - n == wanted:
                    high[written], low[written] = mix(one), mix(other)
                    written += 1
                    wanted = np.int64(1) if wanted == 0 else wanted + stride
            words += 1
            at = stop
        items[row] = written - first
        if words < min_words:
            items[row], written = 0, first
        elif n == 0 or (written - first < 2 and not skips_short):
            items[row], is_whole[row], written = 1, True, first + 1
    return written
