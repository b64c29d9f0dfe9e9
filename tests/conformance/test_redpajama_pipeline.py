"""The pipeline for users of RedPajama-V2 on published files: ids, bounds, levels and near duplicates are those of the chain on LUMI."""

import gzip
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.dataset import open_dataset
from dolma_dask.pipelines.pipeline import run
from dolma_dask.rules.strictness import LEVELS

pytestmark = pytest.mark.conformance

CONFIG = Path(__file__).resolve().parents[2] / "configs/redpajama_v2.yaml"
HERE = {"scheduler": "synchronous", "progress": False}
ENDS = {">": "lower", "<": "upper"}
NOT_FILTERED = "words_per_line"
EMPTY_FIRST_GROUP = "2022-49/0000/en_middle.json.gz/20"
"""A copy that the chain missed: its table of duplicates begins with an empty row group."""
NEAR_TO_IT = "2023-06/0001/en_middle.json.gz/19"
"""A near duplicate of that copy: the chain drops it, since it keeps the copy."""


@pytest.fixture(scope="module")
def out(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run over published files; the page is not drawn, which takes longer than all else and is no part of the chain."""
    folder = tmp_path_factory.mktemp("redpajama")
    variables = {"raw": str(shared / "conformance/rpv2"), "out": str(folder)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dolma_dask.pages.page.render", lambda data: f"dolma_dask {data.version}")
        run(str(CONFIG), variables=variables, from_="convert", **HERE)
    return folder


def ids_of(root: Path) -> list[str]:
    dataset = open_dataset(str(root))
    paths = [root / "documents" / shard.path for shard in dataset.shards]
    return [
        json.loads(line)["id"] for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()
    ]


def listed(folder: Path) -> set[str]:
    """Return the ids in files of the chain: one in a line, by itself or in an object."""
    files = [path.read_bytes() for path in folder.iterdir()]
    texts = [gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data for data in files]
    lines = [line for text in texts for line in text.decode().split("\n") if line]
    return {json.loads(line)["id"] if line.startswith("{") else line for line in lines}


def columns_of(out: Path, *names: str) -> pd.DataFrame:
    return dk.read_dataframe(str(out / "v0"), columns=["id", *names]).compute()


def test_ids_are_the_published_ones(shared: Path, out: Path) -> None:
    signals = sorted((shared / "conformance/rpv2/quality_signals").rglob("*.signals.json.gz"))
    published = [
        json.loads(line)["id"] for path in signals for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    ids = ids_of(out / "v0")
    assert len(published) == 488
    assert set(published) < set(ids), "signals lack the record whose perplexity is null"
    assert len(ids) == len(set(ids)) == 489


@pytest.mark.parametrize("level", LEVELS)
def test_bounds_are_those_of_the_chain(shared: Path, out: Path, level: str) -> None:
    chain = json.loads((shared / f"conformance/rpv2/quality_filter/thresholds_{level}.json").read_text())
    cuts = dk.thresholds(str(out / "v0"), level)
    assert set(cuts.signals) == set(chain["en"]) - {NOT_FILTERED}
    for language in ("de", "es", "fr", "it", "en"):
        for metric in cuts.signals:
            expected = {ENDS[sign]: float(value) for sign, value in chain[language][metric].items()}
            found = {"lower": cuts.lower(metric, language), "upper": cuts.upper(metric, language)}
            known = {end: value for end, value in found.items() if value is not None}
            assert known == pytest.approx(expected, rel=1e-12), (language, metric)


def test_levels_keep_the_documents_of_the_chain(shared: Path, out: Path) -> None:
    folder = shared / "conformance/rpv2/quality_filter"
    files = [str(folder / f"thresholds_{level}.json") for level in LEVELS]
    dk.filter(str(out / "v0"), files, name="golden", **HERE)
    found = columns_of(out, "quality.level", "golden.level")
    for number, (level, count) in enumerate(zip(LEVELS, (176, 49, 21, 2), strict=True), 1):
        expected = listed(folder / f"kept_{level}")
        assert len(expected) == count
        for name in ("quality", "golden"):
            assert set(found.loc[found[f"{name}.level"] >= number, "id"]) == expected, (name, level)


def test_the_chain_keeps_as_many_documents(out: Path) -> None:
    found = columns_of(out, "exact", "quality.level", "fuzzy")
    once = found["exact"].isna()
    good = once & (found["quality.level"] >= 1)
    assert [once.sum(), good.sum(), (good & found["fuzzy"].isna()).sum()] == [472, 169, 135]
    assert set(ids_of(out / "v1")) == set(found.loc[good & found["fuzzy"].isna(), "id"])


def test_with_the_published_flags_all_differences_to_the_chain_have_names(shared: Path, out: Path) -> None:
    root, chain = str(out / "v0"), shared / "conformance/rpv2/lumi_chain"
    dk.attach(root, str(shared / "conformance/rpv2/duplicates"), name="published", missing="null", **HERE)
    rule = "published is None and quality.level >= 1"
    options = {"scheme": "redpajama_v2", "within": "metadata.language", "name": "near"}
    dk.dedupe(root, how="fuzzy", where=rule, **options, **HERE)
    found = columns_of(out, "published", "quality.level", "near")
    once = found["published"].isna()
    good = once & (found["quality.level"] >= 1)
    assert listed(chain / "exact_kept") ^ set(found.loc[once, "id"]) == {EMPTY_FIRST_GROUP}
    assert listed(chain / "quality_filtered") ^ set(found.loc[good, "id"]) == {EMPTY_FIRST_GROUP}
    kept, theirs = set(found.loc[good & found["near"].isna(), "id"]), listed(chain / "final_data")
    assert len(kept) == len(theirs) == 135
    assert clusters_of(out, theirs) ^ clusters_of(out, kept) == {EMPTY_FIRST_GROUP, NEAR_TO_IT}
    assert len(kept - theirs) == len(theirs - kept) == 14, (
        "of 13 other clusters it keeps an arbitrary document"
    )


def clusters_of(out: Path, ids: set[str]) -> set[str]:
    """Return the names of the clusters of some documents; one in none is its own."""
    table = pq.read_table(out / "v0/clusters/near.parquet").to_pylist()
    cluster = {row["id"]: f"{row['cluster_shard']} {row['cluster_row']}" for row in table}
    return {cluster.get(one, one) for one in ids}


def test_ids_do_not_depend_on_the_folder_that_is_given(shared: Path, tmp_path: Path) -> None:
    folder = shared / "conformance/rpv2"
    for name in ("2022-49/0000/de_head.json.gz", "2022-49", ""):
        raw, out = tmp_path / f"raw-{name.replace('/', '-')}", tmp_path / name.replace("/", "-")
        raw.mkdir()
        (raw / "documents").mkdir()
        target = raw / "documents" / name if name else raw / "documents/all"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(folder / "documents" / name)
        run(str(CONFIG), variables={"raw": str(raw), "out": str(out)}, only=["convert"], **HERE)
        assert "2022-49/0000/de_head.json.gz/0" in ids_of(out / "v0")
