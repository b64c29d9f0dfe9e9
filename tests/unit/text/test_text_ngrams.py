"""Counting repeated n-grams by levels equals counting all of them."""

import random
from collections import Counter

import numpy as np
import pytest

from dolma_dask.text import ngrams


def level(n, words):
    """Return what a Counter over all n-grams says: the most frequent one's count and first place, and the places of all that repeat."""
    ngrams_of = [tuple(words[place : place + n]) for place in range(len(words) - n + 1)]
    counts = Counter(ngrams_of)
    ngram, count = counts.most_common(1)[0]
    repeated = [place for place, one in enumerate(ngrams_of) if counts[one] > 1]
    return (count, ngrams_of.index(ngram)), repeated


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_levels_equal_counters(seed, is_large):
    """In a table of any number of slots, as those of large texts have."""
    rng = random.Random(seed)
    vocabulary = rng.choice([1, 2, 3, 10, 1000])
    words = [rng.randrange(vocabulary) for _ in range(rng.choice([2, 3, 12, 300]))]
    if seed % 3 == 0:
        words += words[: len(words) // 2]
    hashes = np.array([word * 0x9E3779B97F4A7C15 % 2**64 for word in words], np.uint64)
    size, slots = len(words), len(words) + 1 if is_large else ngrams.table_slots(len(words))
    table, repeated = np.zeros(2 * slots, np.uint64), np.ones(size, np.bool_)
    first, count, places = (np.full(size, 7, np.int32) for _ in range(3))
    outcome = ngrams.count_pairs(hashes, 0, size, table, slots, 5, first, count, repeated)
    places[: size - 1] = np.arange(size - 1)
    kept = ngrams.keep_repeated(places, size - 1, repeated)
    assert (outcome, places[:kept].tolist()) == level(2, words)
    for n in range(3, min(size, 10) + 1):
        kept = ngrams.keep_neighbours(places, kept)
        outcome = ngrams.count_longer(places, kept, table, slots, 5 + n, first, count, repeated)
        kept = ngrams.keep_repeated(places, kept, repeated)
        assert (outcome, places[:kept].tolist()) == level(n, words)


def test_table_is_twice_as_large_as_needed():
    for entries in (0, 1, 31, 32, 33, 1000):
        slots = ngrams.table_slots(entries)
        assert slots >= max(2 * entries, ngrams.SMALLEST_TABLE)
        assert slots & (slots - 1) == 0


def test_generations_do_not_see_each_other():
    table = np.zeros(2 * 64, np.uint64)
    for generation in range(1, 50):
        for place in range(32):
            assert ngrams.find_or_add(table, 64, generation, np.uint64(place * 7), place) == place
        for place in range(32):
            assert ngrams.find_or_add(table, 64, generation, np.uint64(place * 7), 99) == place


def test_keys_of_one_slot_are_told_apart():
    """Keys that differ by multiples of the slot's period meet in one slot and must be probed on."""
    inverse = pow(0x9E3779B97F4A7C15, -1, 2**64)
    keys = [np.uint64((5 << 32 | k) * inverse % 2**64) for k in range(30)]
    table = np.zeros(2 * 64, np.uint64)
    assert [ngrams.find_or_add(table, 64, 1, key, place) for place, key in enumerate(keys)] == list(range(30))
    assert [ngrams.find_or_add(table, 64, 1, key, 99) for key in keys] == list(range(30))


def test_the_largest_generation_and_place():
    table = np.zeros(2 * 64, np.uint64)
    last = 2**32 - 1
    assert ngrams.find_or_add(table, 64, last, np.uint64(3), last) == last
    assert ngrams.find_or_add(table, 64, last, np.uint64(3), 1) == last


def test_a_table_has_room_and_grows_with_its_entries():
    entries = [1, 33, ngrams.LARGE - 1, ngrams.LARGE, ngrams.LARGE * 3, ngrams.LARGE * 4]
    slots = [ngrams.table_slots(each) for each in entries]
    assert slots == sorted(slots)
    assert all(1.25 * each <= size <= 4 * max(each, 32) for each, size in zip(entries, slots, strict=True))
