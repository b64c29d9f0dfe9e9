"""Near copies of the reference corpus, planted at known rates of edits: as many are found as the curve of the bands says, and hardly any that are unlike.

Similarities are true ones, of the sets of n-grams of our tokens.
"""

from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.minhash.bands import Bands, band_keys, expected_recall, similarity
from dolma_dask.minhash.components import unite
from dolma_dask.minhash.ngrams import hash_tokens
from dolma_dask.verbs.dedupe.fuzzy.signatures import read_signatures

from .test_exact_duplicates import linked, read_rows

pytestmark = pytest.mark.conformance

HERE = {"scheduler": "synchronous", "progress": False}
NGRAM = 5
EDGES = np.array([0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
SHAPES = [(Bands(14, 8), 0), (Bands(14, 8), 90), (Bands(9, 13), 0), (Bands(20, 6), 77)]


@pytest.fixture(scope="module")
def corpus(shared, tmp_path_factory):
    """Return (root, documents, planted pairs as rows, their similarity)."""
    root = linked(tmp_path_factory.mktemp("recall"), shared / "corpus/documents")
    documents = read_rows(root / "documents")
    dk.dedupe(str(root), how="fuzzy", **HERE)
    rows = {document["id"]: row for row, document in enumerate(documents)}
    truth = pq.read_table(shared / "corpus/truth.parquet").to_pylist()
    pairs = [(rows[row["id"]], rows[row["origin"]]) for row in truth if row["kind"] == "near"]
    grams = ngram_sets(documents, {row for pair in pairs for row in pair})
    return root, documents, np.array(pairs), np.array([jaccard(grams[a], grams[b]) for a, b in pairs])


def ngram_sets(documents, rows):
    """Return the n-grams of the documents in these rows, by row."""
    texts = pa.array([documents[row]["text"] for row in rows], pa.large_string())
    bounds, hashes = hash_tokens(texts, unit="word")
    tokens = [tuple(hashes[first:last].tolist()) for first, last in pairwise(bounds.tolist())]
    return {
        row: {words[at : at + NGRAM] for at in range(max(len(words) - NGRAM + 1, 1))} if words else set()
        for row, words in zip(rows, tokens, strict=True)
    }


def jaccard(left, right):
    return len(left & right) / max(len(left | right), 1)


def signatures_of(root):
    files = sorted((root / "signatures").rglob("*.parquet"))
    parts = [values for path in files for values, _ in read_signatures(str(path), 128)]
    return np.concatenate(parts)


@pytest.mark.parametrize("bands, least_matches", SHAPES)
def test_recall_is_that_of_the_curve(corpus, bands, least_matches):
    root, _, pairs, true = corpus
    values = signatures_of(root)
    keys = band_keys(values, bands, 0, bands.num_bands)
    left, right = pairs.T
    found = (keys[left] == keys[right]).any(axis=1) & (
        similarity(values[left], values[right]) >= least_matches
    )
    expected = expected_recall(true, bands, 128, least_matches)
    for low, high in pairwise(EDGES):
        inside = (true >= low) & (true < high)
        error = np.sqrt((expected[inside] * (1 - expected[inside])).sum())
        print(
            f"{low:.1f}-{high:.1f} {inside.sum():4} pairs: {found[inside].mean():.3f} {expected[inside].mean():.3f}"
        )
        assert abs(found[inside].sum() - expected[inside].sum()) <= 3 * error + 0.5


def test_recall_of_texts_without_spaces(corpus):
    """Chinese, Japanese and Thai among the planted copies."""
    root, documents, pairs, true = corpus
    unspaced = np.array([is_unspaced(documents[left]["text"]) for left, _ in pairs])
    values = signatures_of(root)
    keys = band_keys(values, Bands(14, 8), 0, 14)
    found = (keys[pairs[:, 0]] == keys[pairs[:, 1]]).any(axis=1)
    expected = expected_recall(true, Bands(14, 8), 128)
    inside = unspaced & (true >= 0.4)
    error = np.sqrt((expected[inside] * (1 - expected[inside])).sum())
    print(
        f"without spaces: {inside.sum()} pairs: {found[inside].sum()} found, {expected[inside].sum():.1f} expected"
    )
    assert inside.sum() > 3
    assert abs(found[inside].sum() - expected[inside].sum()) <= 3 * error + 0.5


def is_unspaced(text):
    return sum("\u0e00" <= char <= "\u0eff" or "\u3040" <= char <= "\u9fff" for char in text) > 0.3 * len(
        text
    )


def test_few_duplicates_are_lost_by_not_comparing_all_pairs(corpus):
    """A bucket compares its first document with the others and neighbours, not each with each."""
    root, documents, _, _ = corpus
    values = signatures_of(root)
    keys = band_keys(values, Bands(14, 8), 0, 14)
    buckets = {}
    for row, own in enumerate(keys.tolist()):
        for key in own if len(documents[row]["text"]) else ():
            buckets.setdefault(key, []).append(row)
    counts = []
    for pairs_of in (
        lambda rows: combinations(rows, 2),
        lambda rows: [*((rows[0], row) for row in rows[1:]), *pairwise(rows)],
    ):
        pairs = np.array(sorted({pair for rows in buckets.values() for pair in pairs_of(rows)}))
        accepted = pairs[similarity(values[pairs[:, 0]], values[pairs[:, 1]]) >= 90]
        parent = np.arange(len(values), dtype=np.uint32)
        counts.append(unite(parent, accepted.astype(np.uint64)))
    print(f"flagged with all pairs {counts[0]}, with star and neighbours {counts[1]}")
    assert counts[1] >= 0.98 * counts[0]


def test_flagged_pairs_are_similar(corpus):
    """Nearly every member of a cluster has another one that is similar; similarities of pairs are printed."""
    root, documents, _, _ = corpus
    table = pq.read_table(root / "clusters/fuzzy.parquet").to_pylist()
    rows = {document["id"]: row for row, document in enumerate(documents)}
    grams = ngram_sets(documents, {rows[row["id"]] for row in table})
    clusters = {}
    for row in table:
        clusters.setdefault((row["cluster_shard"], row["cluster_row"]), []).append(rows[row["id"]])
    everything = [
        jaccard(grams[a], grams[b]) for members in clusters.values() for a, b in combinations(members[:50], 2)
    ]
    nearest = [
        max(jaccard(grams[one], grams[other]) for other in members[:50] if other != one)
        for members in clusters.values()
        for one in members[:50]
    ]
    print(
        f"{len(everything)} pairs in clusters: {np.mean(np.array(everything) >= 0.7):.3f} of 0.7 and more, {np.mean(np.array(everything) >= 0.6):.3f} of 0.6"
    )
    print(
        f"{len(nearest)} members: {np.mean(np.array(nearest) >= 0.7):.3f} have one of 0.7 and more, {np.mean(np.array(nearest) >= 0.6):.3f} of 0.6"
    )
    assert np.mean(np.array(nearest) >= 0.6) > 0.99
