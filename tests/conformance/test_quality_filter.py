"""Quantiles, thresholds and kept documents of RedPajama-V2's signals are those of the chain on LUMI: from attached and from computed signals.

Its quantiles are of documents with lines and a perplexity: on others its scripts end. Its own sampling keeps duplicates, and so do these.
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import metric_oracle
import numpy as np
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.reading.columns import find_columns
from dolma_dask.rules.metrics import METRICS

pytestmark = pytest.mark.conformance

HERE: Any = {"scheduler": "synchronous", "progress": False}
LANGUAGES = ("de", "en", "es", "fr", "it")
LEVELS = ("regular", "strict", "even_stricter", "strictest")
SETS = ("attached", "computed")
COUNTED = "words_per_line_mean is not None and perplexity is not None"


@pytest.fixture(scope="module")
def v0(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The published documents with signals: attached as JSON lines and in Parquet, and computed."""
    folder = shared / "conformance/rpv2"
    root = str(tmp_path_factory.mktemp("quality") / "v0")
    dk.convert([str(folder / "documents")], to=root, mapping="redpajama_v2", **HERE)
    dk.attach(root, str(folder / "quality_signals"), name="attached", **HERE)
    dk.attach(root, str(folder / "quality_signals"), name="columns", format="parquet", **HERE)
    taggers = ["redpajama_v2_doc", "redpajama_v2_lines", "redpajama_v2_ccnet"]
    dk.tag(root, taggers, experiment="computed", artifacts=str(folder / "artifacts"), **HERE)
    dk.attach(root, str(folder / "duplicates"), name="exact", **HERE)
    return root


@cache
def published_quantiles(shared: Path) -> dict[str, dict[str, list[float]]]:
    """Deciles by language and metric."""
    found: dict[str, dict[str, list[float]]] = {}
    for language in LANGUAGES:
        path = shared / f"conformance/rpv2/quality_filter/quantiles/{language}.txt"
        pairs = (line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        found[language] = {metric: json.loads(values) for metric, values in pairs}
    return found


@cache
def published_metrics(shared: Path) -> dict[str, tuple[str, dict[str, float | None]]]:
    """Language and metrics of each document with signals, by the definition of the tests."""
    paths = (shared / "conformance/rpv2/quality_signals").rglob("*.signals.json.gz")
    rows = [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]
    return {
        row["id"]: (
            row["metadata"]["language"],
            metric_oracle.metrics(row["quality_signals"], row["metadata"]["language"]),
        )
        for row in rows
    }


def kept(folder: Path) -> set[str]:
    """Ids in JSON lines below a folder."""
    paths = [path for path in folder.rglob("*.json*") if path.suffix in (".gz", ".jsonl")]
    data = [
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in paths
    ]
    return {json.loads(line)["id"] for lines in data for line in lines.splitlines()}


def test_the_definitions_of_the_tests_give_the_published_quantiles(shared: Path) -> None:
    for language in LANGUAGES:
        rows = [metrics for of, metrics in published_metrics(shared).values() if of == language]
        rows = [row for row in rows if row["words_per_line_mean"] is not None]
        for metric in METRICS:
            values = [row[metric] for row in rows if row[metric] is not None]
            found = np.percentile(values, range(10, 100, 10))
            assert found == pytest.approx(published_quantiles(shared)[language][metric], rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", [*SETS, "columns"])
def test_metrics_of_every_document_are_those_of_the_definitions(v0: str, shared: Path, name: str) -> None:
    columns = find_columns(dk.open_dataset(v0), ["id", *METRICS], [name])
    published, compared = published_metrics(shared), 0
    for shard in columns.dataset.shards:
        for block in columns.work(shard).open():
            for row in block.batch.to_pylist():
                if row["id"] in published:
                    assert row == {"id": row["id"], **published[row["id"]][1]}
                    compared += 1
    assert compared == 488


@pytest.mark.parametrize("name", SETS)
def test_quantiles_and_thresholds(v0: str, shared: Path, name: str) -> None:
    options: Any = {"by": "metadata.language", "attributes": [name], "where": COUNTED, "name": name, **HERE}
    for level in LEVELS:
        summary = dk.quantiles(v0, list(METRICS), level=[level], **options)
        path = shared / f"conformance/rpv2/quality_filter/thresholds_{level}.json"
        expected = json.loads(path.read_text())
        assert summary.thresholds is not None
        found = summary.thresholds.to_lumi()
        for language in LANGUAGES:
            del expected[language]["words_per_line"]  # of single lines: the chain filters by none
        assert found == expected, "the same numbers, spelled alike"
    for language, metrics in published_quantiles(shared).items():
        for metric in METRICS:
            quantiles = summary.quantiles[metric][language]["q"]
            deciles = [quantiles[f"{number / 10}"] for number in range(1, 10)]
            assert deciles == pytest.approx(metrics[metric], rel=1e-12, abs=1e-12), (language, metric)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", SETS)
def test_kept_documents(v0: str, shared: Path, tmp_path: Path, name: str, level: str) -> None:
    folder = shared / "conformance/rpv2/quality_filter"
    options: Any = {"to": str(tmp_path / "v1"), "attributes": [name], **HERE}
    mixed = dk.mix(v0, thresholds=str(folder / f"thresholds_{level}.json"), **options)
    assert kept(tmp_path / "v1/documents") == kept(folder / f"kept_{level}")
    missing = {rule.short.split()[0]: rule.missing for rule in mixed.rules}
    without_signals = (
        name != "computed"
    )  # the document without perplexity, which upstream skips, has no signals
    assert (missing["perplexity"], missing["number_of_words"]) == (1, without_signals)


def test_levels_of_single_languages_and_metrics(v0: str, shared: Path, tmp_path: Path) -> None:
    """Each document is kept as by the file of the level of its language, but for one metric of a level of its own."""
    options: Any = {"by": "metadata.language", "attributes": ["attached"], "where": COUNTED, **HERE}
    level = ["strict", "de=regular", "fr=even_stricter", "fr.perplexity=regular"]
    dk.quantiles(v0, list(METRICS), level=level, name="single", **options)
    path = f"{v0}/quantiles/single.mixed.json"
    dk.mix(v0, to=str(tmp_path / "v1"), thresholds=path, attributes=["attached"], **HERE)
    bounds = {
        one: json.loads((shared / f"conformance/rpv2/quality_filter/thresholds_{one}.json").read_text())
        for one in LEVELS
    }
    expected = set()
    for id_, (language, metrics) in published_metrics(shared).items():
        of = bounds[{"de": "regular", "fr": "even_stricter"}.get(language, "strict")][language]
        of = {**of, "perplexity": bounds["regular"]["fr"]["perplexity"]} if language == "fr" else of
        if all(is_inside(metrics[metric], of[metric]) for metric in METRICS):
            expected.add(id_)
    assert kept(tmp_path / "v1/documents") == expected != set()


def is_inside(value: float | None, ends: dict[str, str]) -> bool:
    if value is None:
        return False
    return value >= float(ends.get(">", "-inf")) and value <= float(ends.get("<", "inf"))


def test_quantiles_over_kept_documents_by_language_and_bucket(v0: str, shared: Path) -> None:
    by = ["metadata.language", "metadata.bucket"]
    found = dk.quantiles(
        v0, "perplexity", by=by, over="kept", attributes=["attached"], name="kept", **HERE
    ).quantiles["perplexity"]
    flagged = {
        id_
        for path in (shared / "conformance/rpv2/duplicates").rglob("*.parquet")
        for id_ in pq.read_table(path).column("doc_id").to_pylist()
    }
    values: dict[str, list[float]] = {}
    for id_, (_, metrics) in published_metrics(shared).items():
        name, _, _ = id_.rsplit("/", 2)[1].partition(".")
        if id_ not in flagged and metrics["perplexity"] is not None:
            values.setdefault(name.replace("_", "/"), []).append(metrics["perplexity"])
    assert {group: entry["n"] for group, entry in found.items() if group != "all"} == {
        group: len(each) for group, each in values.items()
    }
    for group, each in values.items():
        assert found[group]["q"]["0.5"] == pytest.approx(np.percentile(each, 50), rel=1e-12)


PUBLISHED_REGULAR_EN = {
    "number_of_words": {">": 63},
    "number_of_lines": {">": 3},
    "number_of_characters": {">": 392},
    "language_identification": {">": 0.84},
    "perplexity": {"<": 487.9},
    "stop_words": {">": 0.191},
    "special_characters": {"<": 0.309},
    "flagged_words": {"<": 1},
    "words_per_line_mean": {">": 10.8},
    "short_line_ratio": {"<": 0.917},
    "character_repetition10": {"<": 0.0817},
    "character_repetition5": {"<": 0.184},
    "word_repetition": {">": 0.347, "<": 0.768},
    "unigram_entropy": {">": 3.685, "<": 5.749},
    "lines_end_in_punct": {">": 0.0},
}
"""The chain's published thresholds of English, rounded; those of other languages are not at hand."""


def test_documents_kept_by_the_published_thresholds_of_english(v0: str, shared: Path, tmp_path: Path) -> None:
    path = tmp_path / "published.json"
    path.write_text(json.dumps({"en": PUBLISHED_REGULAR_EN}))
    dk.mix(v0, to=str(tmp_path / "v1"), thresholds=str(path), attributes=["attached"], **HERE)
    folder = shared / "conformance/rpv2/quality_filter/kept_published_regular"
    lines = (folder / "en_quality_filtered_ids.jsonl").read_text().splitlines()
    assert kept(tmp_path / "v1/documents") == {json.loads(line)["id"] for line in lines}
