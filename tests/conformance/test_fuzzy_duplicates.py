"""Near duplicates: the clusters of RedPajama-Data's own LSH and of the LUMI chain, from the same documents."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import dolma_dask as dk

pytestmark = pytest.mark.conformance

HERE = {"scheduler": "synchronous", "progress": False}
LANGUAGES = ("de", "en", "es", "fr", "it")
SHAPES = {"0.7": (14, 9), "0.8": (9, 13), "0.9": (5, 25), "1.0": (1, 128)}


@pytest.fixture(scope="module")
def world(shared, tmp_path_factory) -> Path:
    """Return a dataset of all documents, and one for each language beside it."""
    folder = tmp_path_factory.mktemp("rpv2")
    source = shared / "conformance/rpv2/documents"
    options = {"mapping": "redpajama_v2", "on_bad_record": "quarantine", "max_bad_fraction": 0.1, **HERE}
    dk.convert([str(source)], to=str(folder / "all"), **options)
    for language in LANGUAGES:
        for path in (folder / "all/documents").rglob(f"{language}_*"):
            link = folder / language / path.relative_to(folder / "all")
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    return folder


def partition(rows, among=None) -> set[frozenset[str]]:
    """Return the clusters of two and more, of (cluster, id)."""
    clusters = defaultdict(set)
    for cluster, identity in rows:
        if among is None or identity in among:
            clusters[cluster].add(identity)
    return {frozenset(ids) for ids in clusters.values() if len(ids) > 1}


def ours(root: Path, similarity: str, among=None, **options) -> set[frozenset[str]]:
    """Return the clusters that we find."""
    bands, rows = SHAPES[similarity]
    shape = (
        {"similarity": float(similarity)}
        if similarity != "1.0"
        else {"num_bands": bands, "rows_per_band": rows}
    )
    name = f"fuzzy-{similarity}"
    dk.dedupe(str(root), how="fuzzy", scheme="redpajama_v2", name=name, **shape, **options, **HERE)
    table = pq.read_table(root / f"clusters/{name}.parquet").to_pylist()
    return partition((((row["cluster_shard"], row["cluster_row"]), row["id"]) for row in table), among)


def lines(path: Path) -> list[dict]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(map(json.loads, text.splitlines()))


@pytest.mark.parametrize("similarity", SHAPES)
def test_clusters_of_all_documents(shared, world, similarity):
    expected = lines(shared / f"conformance/rpv2/expected_clusters_sim{similarity}.jsonl")
    known = {row["id"] for row in expected}
    theirs = partition((row["cluster_min_id_int"], row["id"]) for row in expected)
    assert theirs
    assert ours(world / "all", similarity, known) == theirs


@pytest.mark.parametrize("similarity", SHAPES)
def test_clusters_of_the_published_signatures(shared, world, similarity):
    """They are those of the texts; the record that upstream could not read has no row in its table."""
    folder = shared / "conformance/rpv2"
    known = {row["id"] for row in lines(folder / f"expected_clusters_sim{similarity}.jsonl")}
    made = ours(world / "all", similarity, known)
    found = ours(world / "all", similarity, known, signatures=str(folder / "minhash"))
    assert found
    assert found == made
    assert sorted(path.name for path in (world / "all/signatures").iterdir()) == [
        "redpajama_v2-word13-128-seed42",
        "redpajama_v2-word13-128-seed42-published",
    ]


def test_published_signatures_are_counted(shared, world):
    counts = dk.dedupe(
        str(world / "all"),
        how="fuzzy",
        scheme="redpajama_v2",
        signatures=str(shared / "conformance/rpv2/minhash"),
        name="counted",
        **HERE,
    ).counts
    assert (counts["without_signature"], counts["not_in_tables"], counts["rows_without_document"]) == (
        46,
        1,
        0,
    )


def test_signed_tables_are_the_published_ones(shared, world, tmp_path):
    """Signatures of the documents that upstream could read: row numbers are those of the ids."""
    dk.sign(str(world / "all"), str(tmp_path), where="metadata.perplexity is not None", **HERE)
    published = shared / "conformance/rpv2/minhash"
    paths = sorted(path.relative_to(published) for path in published.rglob("*.minhash.parquet"))
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.minhash.parquet")) == paths
    for path in paths:
        ours, theirs = pq.read_table(tmp_path / path), pq.read_table(published / path)
        assert ours.equals(theirs)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("similarity", SHAPES)
def test_clusters_of_each_language(shared, world, similarity, language):
    folder = shared / f"conformance/rpv2/lumi_lsh/signature_sim{similarity}"
    expected = lines(folder / f"{language}_clusters.jsonl")
    known = {row["id"] for row in expected}
    theirs = partition((row["cluster_root"], row["id"]) for row in expected)
    found = ours(world / language, similarity, known)
    assert found == theirs
    kept = sum(row["kept"] for row in expected)
    assert len(known) - sum(map(len, found)) + len(found) == kept


def test_the_chain_on_what_its_quality_filter_keeps(shared, world, tmp_path):
    """In one call for all languages; the chain keeps any document of a cluster."""
    chain, root = shared / "conformance/rpv2/lumi_chain", str(world / "all")
    listed = [
        line
        for path in sorted((chain / "quality_filtered").glob("*"))
        for line in path.read_text().splitlines()
    ]
    (tmp_path / "listed.txt").write_text("".join(f"{line}\n" for line in listed))
    dk.block(root, str(tmp_path / "listed.txt"), name="quality", **HERE)
    summary = dk.dedupe(
        root,
        how="fuzzy",
        scheme="redpajama_v2",
        similarity=0.8,
        where="quality is not None",
        within="metadata.language",
        name="chain",
        **HERE,
    )
    theirs = {row["id"] for path in (chain / "fuzzy_ids_sim0.8").glob("*") for row in lines(path)}
    table = pq.read_table(world / "all/clusters/chain.parquet").to_pylist()
    clusters = partition(((row["cluster_shard"], row["cluster_row"]), row["id"]) for row in table)
    assert clusters
    assert all(len(ids & theirs) == 1 for ids in clusters)
    assert len(theirs) == len(listed) - summary.counts["duplicates"]
    assert theirs <= set(listed)
