"""word-buckets: the counts of a dataset, of what a rule keeps; and tag, which weighs documents by them."""

import json

import msgspec
import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.taggers.importance import BucketCounts

TEXTS = {
    "wiki": "The river rises in the hills, and flows east.",
    "web": "Click here! Click now! Free, free, free.",
}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "v0/documents").mkdir(parents=True)
    for shard in ("a", "b"):
        rows = [
            {"id": f"{shard}{n}", "text": TEXTS[name], "source": name} for n in range(4) for name in TEXTS
        ]
        path = tmp_path / f"v0/documents/{shard}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def count(root, name, **options):
    to = str(root / f"models/importance/{name}.json")
    return dk.word_buckets(str(root / "v0"), to=to, progress=False, **options)


def test_documents_are_weighed_by_counts_of_datasets(root):
    every, some = count(root, "source"), count(root, "wiki", where="source == 'wiki'")
    assert (every.documents, every.words, some.documents, some.words) == (16, 184, 8, 88)
    known = msgspec.json.decode((root / "models/importance/wiki.json").read_bytes(), type=BucketCounts)
    assert (known.documents, known.words, sum(known.counts)) == (8, 88, 88 + 80)
    assert f"{some.empty_buckets:,}" in str(some)
    dk.tag(str(root / "v0"), "importance", artifacts=str(root / "models"), progress=False)
    kept = dk.mix(str(root / "v0"), to=str(root / "v1"), where="importance_wiki > 0", progress=False)
    assert kept.counts["documents_out"] == 8
    rows = [json.loads(line) for line in (root / "v0/attributes/importance/a.jsonl").read_text().splitlines()]
    weights, draws = (
        [row["attributes"][f"importance__importance__{name}_wiki"][0][2] for row in rows]
        for name in ("importance", "draw")
    )
    assert (len({*weights}), len({*draws})) == (2, 8)
    with pytest.raises(UsageError, match=r"--format jsonl\.gz"):
        dk.tag(
            str(root / "v0"),
            "importance",
            artifacts=str(root / "models"),
            format="parquet",
            experiment="x",
            progress=False,
        )


def test_counts_that_are_of_no_use_are_refused_before_anything_runs(root):
    count(root, "source")
    models = root / "models"
    for content, message in [
        (None, "importance/source.json, of what"),
        ("{", "a.json: .*expected counts of"),
    ]:
        if content:
            (models / "importance/a.json").write_text(content)
        with pytest.raises(UsageError, match=message):
            dk.tag(str(root / "v0"), "importance", artifacts=str(models), progress=False)
    assert not (root / "v0/attributes").exists()


def test_counts_are_no_documents_and_do_not_depend_on_workers(root):
    count(root, "source", scheduler="synchronous")
    first = (root / "models/importance/source.json").read_bytes()
    count(root, "source", scheduler="threads", workers=2)
    assert (root / "models/importance/source.json").read_bytes() == first
    with pytest.raises(UsageError, match="lies among the documents"):
        dk.word_buckets(str(root / "v0"), to=str(root / "v0/documents/x.json"), progress=False)
