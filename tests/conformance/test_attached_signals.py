"""Published signals and duplicates, attached to the published documents, are read back as they are published."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk

pytestmark = pytest.mark.conformance

HERE: Any = {"scheduler": "synchronous", "progress": False}


@pytest.fixture(scope="module")
def v0(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The published documents as a dataset, with signals as JSON lines and in Parquet, and duplicates."""
    folder = shared / "conformance/rpv2"
    root = str(tmp_path_factory.mktemp("attached") / "v0")
    dk.convert([str(folder / "documents")], to=root, mapping="redpajama_v2", **HERE)
    counts = dk.attach(root, str(folder / "quality_signals"), name="rps", **HERE).counts
    assert (counts["documents_in"], counts["documents_without_row"]) == (489, 1)
    dk.attach(root, str(folder / "quality_signals"), name="columns", format="parquet", **HERE)
    dk.attach(root, str(folder / "duplicates"), name="exact", **HERE)
    return root


@pytest.fixture(scope="module")
def published(shared: Path) -> dict[str, dict[str, Any]]:
    """Signals by the id of their document."""
    paths = (shared / "conformance/rpv2/quality_signals").rglob("*.signals.json.gz")
    rows = [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]
    return {row["id"]: row["quality_signals"] for row in rows}


def value_of(spans: list[Any] | None, is_list: bool) -> Any:
    """Return what a reader gives for a published value: the spans, or the score of the only one."""
    scored = [span for span in spans or [] if span[2] is not None]
    if is_list:
        return scored if spans is not None and (scored or not spans) else None
    return scored[0][2] if scored else None


@pytest.mark.parametrize("name", ["rps", "columns"])
def test_every_value_is_read_back(v0: str, published: dict[str, dict[str, Any]], name: str) -> None:
    signals = sorted({signal for row in published.values() for signal in row})
    assert len(signals) == 45
    frame = dk.read_dataframe(v0, columns=["id", *signals], attributes=[name]).compute(
        scheduler="synchronous"
    )
    assert len(frame) == 489
    values = 0
    for row in frame.to_dict("records"):
        for signal in signals:
            is_list, found = signal.startswith("rps_lines_"), row[signal]
            expected = value_of(published.get(row["id"], {}).get(signal), is_list)
            if expected is None:
                assert found is None or found is pd.NA or found != found, (row["id"], signal)
            elif is_list:
                assert [[span["start"], span["end"], span["score"]] for span in found] == expected
            else:
                assert found == expected, (row["id"], signal)
            values += expected is not None
    assert values > 18_000


def test_types_are_kept(v0: str, published: dict[str, dict[str, Any]]) -> None:
    """Integers stay integers, and all digits stay."""
    lines = [
        line
        for path in Path(v0, "attributes/rps").rglob("*.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    for row in map(json.loads, lines):
        of_document = published.get(row["id"], {})
        expected = {
            signal: spans for signal, spans in of_document.items() if not spans or spans[0][2] is not None
        }
        assert repr(row["attributes"]) == repr(expected)


def test_flags_are_the_published_duplicates(shared: Path, v0: str) -> None:
    tables = (shared / "conformance/rpv2/duplicates").rglob("*.duplicates.parquet")
    listed = [one for path in tables for one in pq.read_table(path).column("doc_id").to_pylist()]
    frame = dk.read_dataframe(v0, columns=["id", "exact"], attributes=["exact"]).compute(
        scheduler="synchronous"
    )
    assert sorted(frame.loc[frame["exact"] == 1, "id"]) == sorted(listed)
    assert frame["exact"].isna().sum() == 489 - len(listed) == 472


def test_a_rule_over_signals_and_duplicates(
    v0: str, tmp_path: Path, published: dict[str, dict[str, Any]]
) -> None:
    where = "exact is None and rps_doc_word_count >= 100 and ccnet_perplexity < 500"
    kept = dk.mix(v0, to=str(tmp_path / "v1"), where=where, attributes=["exact", "rps"], **HERE)
    counts = {rule.rule: rule.matched for rule in kept.rules}
    assert counts["rps_doc_word_count >= 100"] == sum(
        signals["rps_doc_word_count"][0][2] >= 100 for signals in published.values()
    )
    assert 0 < kept.counts["documents_out"] < 472
