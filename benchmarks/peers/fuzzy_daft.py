"""Fuzzy duplicates by Daft: its expression ``minhash`` of 112 values over word 5-grams, 14 bands of 8 rows; ids only.

Daft signs; bands are grouped by NumPy and joined by scipy, since Daft's own groups and joins cost more. ``raw`` leaves texts as they are but for
white space; else they are in lower case and without punctuation too, as ours.
"""

import sys
from pathlib import Path

import daft
import numpy as np
from daft.functions import minhash, normalize
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

BANDS, ROWS, NGRAM = 14, 8, 5


def sign(folder: str, raw: bool) -> tuple[list[str], np.ndarray]:
    """Return all ids and their signatures, uint32 (n, BANDS * ROWS)."""
    files = daft.read_json(f"{folder}/**/*.jsonl.gz")
    text = normalize(daft.col("text"), white_space=True, lowercase=not raw, remove_punct=not raw)
    signed = minhash(text, num_hashes=BANDS * ROWS, ngram_size=NGRAM, hash_function="xxhash")
    table = files.select(daft.col("id"), signed.alias("signature")).to_arrow()
    signatures = [part.values.to_numpy() for part in table["signature"].chunks]
    return table["id"].to_pylist(), np.concatenate(signatures).reshape(len(table), -1)


def first_of_clusters(signatures: np.ndarray) -> np.ndarray:
    """Return the first member of each document's cluster."""
    count = len(signatures)
    left, right = [], []
    for band in range(BANDS):
        rows = np.ascontiguousarray(signatures[:, band * ROWS : (band + 1) * ROWS])
        keys = rows.view(f"V{4 * ROWS}").ravel()
        _, first, groups = np.unique(keys, return_index=True, return_inverse=True)
        left.append(first[groups])
        right.append(np.arange(count))
    edges = np.concatenate(left), np.concatenate(right)
    graph = coo_array((np.ones(len(edges[0]), bool), edges), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    first = np.full(count, count)
    np.minimum.at(first, labels, np.arange(count))
    return first[labels]


if __name__ == "__main__":
    ids, signatures = sign(sys.argv[1], sys.argv[3:] == ["raw"])
    first = first_of_clusters(signatures)
    found = np.flatnonzero(first < np.arange(len(ids)))
    Path(sys.argv[2]).write_text("".join(f"{ids[row]}\n" for row in found.tolist()))
