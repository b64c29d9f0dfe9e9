"""Summary and report of a deduplication by similarity."""

import json
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.minhash.bands import Bands, collision_probability
from dolma_dask.verbs.dedupe.flags import LARGEST, SIZE_EDGES, add_sizes, count_sizes, size_words
from dolma_dask.verbs.dedupe.fuzzy.clusters import ClusterReducer, MemberEmitter
from dolma_dask.verbs.dedupe.fuzzy.comparison import comparison_of

from .conftest import write_lines
from .report_pages import QUIET, lines_of, page_of, stages


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Write families of 1 to 6 equal texts of ten words of their own, in two shards, and deduplicate them."""
    root = tmp_path_factory.mktemp("shown") / "v0"
    families = [[" ".join(f"f{family}w{word}" for word in range(10))] * (1 + family % 6) for family in range(24)]  # fmt: skip
    texts = [text for family in families for text in family]
    lines = [json.dumps({"id": f"d{n}", "text": text, "source": "s"}) for n, text in enumerate(texts)]
    for shard in range(2):
        write_lines(root / f"documents/{shard}.jsonl.gz", lines[shard::2])
    return root, dk.dedupe(
        str(root), how="fuzzy", num_bands=9, rows_per_band=13, similarity=0.8, verify="none", **QUIET
    )


def test_sizes_are_counted_in_half_octaves():
    draw = np.random.default_rng(3)
    sizes = (2 + draw.pareto(0.7, 2000) * 2).astype(np.int64)
    parts = np.array_split(sizes, 3)
    counts = add_sizes([[], *map(count_sizes, parts)])
    bins = Counter(max(edge for edge in SIZE_EDGES.tolist() if edge <= size) for size in sizes.tolist())
    assert {int(SIZE_EDGES[n]): count for n, count in enumerate(counts) if count} == dict(bins)
    assert counts[-1] > 0
    assert [size_words(n) for n in range(5)] == ["2", "3", "4 to 5", "6 to 7", "8 to 11"]
    assert count_sizes(np.empty(0, np.uint64)) == []


def test_the_summary_says_what_was_compared_and_what_is_found(world):
    summary = world[1]
    rows = {fact.label: fact.text for fact in summary.facts()}
    assert rows["scheme"] == "dolma_dask, 5-grams of words, 128 values, seed 42"
    assert rows["bands"] == "9 of 13 rows"
    told = summary.to_json()["comparison"]
    at = [told["curve"]["half"], told["curve"]["nine_tenths"]]
    assert collision_probability(at, Bands(9, 13)) == pytest.approx([0.5, 0.9])
    assert rows["finds"] == f"half of the pairs at similarity {at[0]:.2f}, nine tenths at {at[1]:.2f}"
    similarities = np.linspace(0, 0.8, 20001)
    below = collision_probability(similarities, Bands(9, 13)).mean() * 0.8
    assert rows["error areas"].startswith(f"false positives {below:.3f} (below 0.80)")
    assert "comparison" not in dk.dedupe(str(world[0]), **QUIET).to_json()


def test_the_report_has_the_curve_and_the_sizes_of_clusters(world):
    root, summary = world
    tables = {table["title"]: table for table in page_of(root)[0]["results"]}
    curve = tables["fuzzy in v0, pairs found by similarity"]
    for similarity, share in curve["rows"]:
        assert share == pytest.approx(collision_probability(similarity, Bands(9, 13)), abs=1e-4)
    assert curve["plot"]["threshold"] == [[">=", 0.8]]
    sizes = pq.read_table(root / "clusters/fuzzy.parquet").to_pandas().query("survivor")["size"]
    found = dict(tables["fuzzy in v0, sizes of clusters"]["rows"])
    assert found == {"2": (sizes == 2).sum(), "3": (sizes == 3).sum(), "4 to 5": (sizes // 2 == 2).sum(), "6 to 7": (sizes == 6).sum()}  # fmt: skip
    assert sum(found.values()) == summary.counts["clusters"]
    assert len(tables["fuzzy in v0, largest clusters"]["rows"]) == summary.counts["clusters"]


def test_verification_by_ngrams_finds_nothing_below_the_similarity():
    compared = comparison_of({"similarity": 0.8, "verify": "ngrams", "num_bands": 14, "rows_per_band": 8})
    recall = compared.recall([0.5, 0.79, 0.8, 0.9])
    assert recall[:2].tolist() == [0, 0]
    assert recall[2:] == pytest.approx(collision_probability([0.8, 0.9], Bands(14, 8)), abs=2e-3)
    assert (compared.curve.false_positives, compared.curve.half) == (0, 0.8)
    assert comparison_of(compared.params()) == compared


def test_documents_that_were_signed_in_two_ways_are_counted_once(tmp_path):
    write_lines(tmp_path / "v0/documents/0.jsonl", lines_of(range(20)))
    for ngram in (3, 5):
        dk.dedupe(str(tmp_path / "v0"), how="fuzzy", ngram=ngram, **QUIET)
    assert len(list(tmp_path.glob("v0/signatures/*"))) == 2
    told = stages(page_of(tmp_path / "v0")[0])
    assert [told[verb]["documents_in"] for verb in ("signatures", "dedupe")] == [20, 20]


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["first", "longest"])
def test_the_largest_clusters_tell_their_inner_similarity(tmp_path, keep):
    draw = np.random.default_rng(6)
    lines = []
    for size in (2, 3, 5, 9):
        words = [f"f{size}w{draw.integers(10**6)}" for _ in range(100)]
        for member in range(size):
            copy = [*words[: 100 - 2 * member], *(f"m{member}n{n}" for n in range(3 * member))]
            lines.append(json.dumps({"id": f"c{size}-{member}", "source": "s", "text": " ".join(copy)}))
    for shard in range(3):
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl", lines[shard::3])
    summary = dk.dedupe(str(tmp_path / "v0"), how="fuzzy", keep=keep, **QUIET)
    table = pq.read_table(tmp_path / "v0/clusters/fuzzy.parquet").to_pandas()
    groups = [rows for _, rows in table.groupby(["cluster_shard", "cluster_row"])]
    means = {rows["id"][rows["survivor"]].item(): (len(rows), rows["similarity"].mean()) for rows in groups}
    assert len(means) >= 4
    assert {one.id: (one.size, one.similarity) for one in summary.clusters} == {
        survivor: (size, pytest.approx(mean, abs=1e-4)) for survivor, (size, mean) in means.items()
    }
    assert f"{summary.clusters[0].similarity:.3f}" in str(summary)
    shown = {table["title"]: table for table in page_of(tmp_path / "v0", keep)[0]["results"]}
    largest = shown["fuzzy in v0, largest clusters"]
    assert largest["columns"][2] == "mean similarity"
    assert [row[2] for row in largest["rows"]] == [one.similarity for one in summary.clusters]


@pytest.mark.slow
def test_the_report_shows_how_members_of_a_cluster_differ(tmp_path):
    words = [f"w{n}" for n in range(100)]
    texts = [" ".join(words[:50] + other + words[50:]) for other in ([], [], ["<b>new</b>"], ["old"])]
    lines = [json.dumps({"id": f"d{n}", "source": "s", "text": text}) for n, text in enumerate(texts)]
    write_lines(tmp_path / "v0/documents/0.jsonl", lines)
    dk.dedupe(str(tmp_path / "v0"), how="fuzzy", **QUIET)
    (cluster,) = page_of(tmp_path / "v0")[0]["clusters"]
    assert cluster["title"] == "4 documents in fuzzy"
    heads = [member["head"].split(",")[0] for member in cluster["members"]]
    assert heads == ["survivor d0 (s)", "copy d2 (s)", "copy d3 (s)"]  # d1 is the same
    assert ["added", "<b>new</b> "] in cluster["members"][1]["pieces"]
    table = tmp_path / "v0/clusters/fuzzy.parquet"
    whole = table.read_bytes()
    table.write_bytes(whole[:99] + bytes(99) + whole[198:])
    (unread,) = page_of(tmp_path / "v0", "damaged")[0]["clusters"]
    assert unread["note"]
    assert unread["members"] == []
    table.write_bytes(b"damaged")
    assert page_of(tmp_path / "v0", "again")[0]["clusters"] == []  # whose record is believed no more


@pytest.mark.parametrize("seed", range(5))
def test_clusters_may_go_on_in_the_next_run(seed):
    draw = np.random.default_rng(seed)
    dtype = MemberEmitter(None, "first").dtype
    records, expected = [], {}
    for cluster in range(30):
        size = int(draw.integers(2, 9))
        ranks, matches = draw.integers(1, 4, size), draw.integers(0, 129, size)
        members = sorted(
            zip(ranks.tolist(), [100 * cluster + n for n in range(size)], matches.tolist(), strict=True)
        )
        records += [(cluster, 0, 0, size, 0), *((cluster, 0, rank, at, match) for rank, at, match in members)]
        expected[members[0][1]] = [size, members[0][1], int(matches.sum())]
    rows = np.zeros(len(records), dtype)
    rows["lo"], rows["hi"], rows["rank"], rows["location"], rows["matches"] = np.array(records).T
    runs = np.array_split(rows, [*np.sort(draw.integers(0, len(rows), 7))])
    given = []
    told = ClusterReducer().reduce(runs, given.append)
    assert told["largest"] == sorted(expected.values(), key=lambda one: (-one[0], one[1]))[:LARGEST]
    assert sum(told["sizes"]) == len(expected)
    members = np.concatenate(given)
    assert set(members["location"][members["survives"] == 1].tolist()) == set(expected)
