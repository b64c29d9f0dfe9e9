"""Kernels over records of an index and of new documents, against plain Python, however the records are cut into runs."""

import random
from itertools import groupby, pairwise

import numpy as np
import pytest

from dolma_dask.exchange.contract import to_records
from dolma_dask.verbs.dedupe.fuzzy.clusters import NOWHERE
from dolma_dask.verbs.dedupe.index.exact import KnownReducer
from dolma_dask.verbs.dedupe.index.fuzzy import KnownPairs
from dolma_dask.verbs.dedupe.index.kernels import OLD

FIRST = 1000
FIELDS = {3: ["hi", "lo", "location"], 4: ["hi", "lo", "rank", "location"], 2: ["key", "docno"]}


def runs_of(rows, draw):
    """Yield records in runs, cut anywhere."""
    words = np.array(rows, np.uint64)
    dtype = np.dtype([(name, "<u8") for name in FIELDS[words.shape[1]]])
    cuts = [0, *sorted(draw.randrange(1, len(rows)) for _ in range(draw.randrange(4))), len(rows)]
    for start, end in pairwise(cuts):
        if start < end:
            yield to_records(words[start:end], dtype)


def given():
    """Return a list and what appends to it."""
    rows = []
    return rows, lambda records: rows.extend(map(tuple, records.tolist()))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_ranked", [False, True])
def test_flags_and_what_is_kept_are_those_of_plain_python(seed, is_ranked):
    draw, rows = random.Random(seed), set()
    for key in range(60):
        if draw.random() < 0.5:
            rows.add((key % 7, key, *([0] if is_ranked else []), draw.randrange(FIRST)))
        for _ in range(draw.choice([0, 0, 1, 1, 2, 5])):
            rank = [draw.randrange(3)] if is_ranked else []
            rows.add((key % 7, key, *rank, FIRST + draw.randrange(10**6)))
    rows = sorted(rows)
    (flags, out), (kept, beside) = given(), given()
    largest = KnownReducer(FIRST).reduce(runs_of(rows, draw), out, beside)["largest"]
    wanted, survivors = [], []
    for key, group in groupby(rows, lambda row: row[:2]):
        first, *others = (row[-1] for row in group)
        wanted += [(one - FIRST, 0, first if first < FIRST else int(NOWHERE)) for one in others]
        if first >= FIRST:
            survivors.append((*key, first))
            wanted += [(first - FIRST, 1 + len(others), int(NOWHERE))] if others else []
    assert sorted(flags) == sorted(wanted)
    assert kept == survivors
    sizes = sorted(((-size, location) for location, size, _ in wanted if size), key=tuple)[:20]
    assert largest == [[-size, location] for size, location in sizes]


@pytest.mark.parametrize("seed", range(20))
def test_each_new_document_is_paired_with_the_index_and_its_neighbours(seed):
    draw = random.Random(seed)
    rows = {
        (key, draw.randrange(draw.choice([50, FIRST, 3 * FIRST])))
        for key in range(40)
        for _ in range(draw.choice([1, 2, 6, 30]))
    }
    rows = sorted(rows)
    found, out = given()
    largest = KnownPairs(5, FIRST).reduce(runs_of(rows, draw), out)["largest"]
    wanted, sizes = [], []
    for _, group in groupby(rows, lambda row: row[0]):
        documents = [row[1] for row in group]
        old = [one for one in documents if one < FIRST][:OLD]
        new = [one for one in documents if one >= FIRST]
        wanted += [(one, another) for another in new for one in old]
        wanted += [(new[0], another) for another in new[1:]]
        wanted += list(pairwise(new[1:]))
        sizes.append(len(documents))
    assert sorted(found) == sorted((low << 5, high) for low, high in wanted)
    assert largest == max(sizes)
