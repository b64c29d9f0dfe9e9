"""`stat` against loops in plain Python: values of spans, quantiles, and the bins of the Dolma toolkit."""

import gzip
import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError

HERE: dict[str, Any] = {"scheduler": "synchronous", "progress": False}

ROWS: list[list[dict[str, Any]]] = [
    [
        {"a": [[0, 5, 1.5], [5, 9, -2 / 7]], "b__label__x": [[0, 9, 1.00001]]},
        {"a": []},
        {},
        {"a": [[0, 3, 0.5]]},
    ],
    [],
    [{"a": [[n, 2 * n, n / 7]], "n": n, "s": "word"} for n in range(300)],
]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Three shards with an attribute set, one of them empty."""
    for number, rows in enumerate(ROWS):
        ids = [{"id": f"{number}-{row}", "source": "s"} for row in range(len(rows))]
        documents = [{**one, "text": "x" * 600} for one in ids]
        attributes = [{**one, "attributes": values} for one, values in zip(ids, rows, strict=True)]
        for folder, lines in (("documents", documents), ("attributes/t", attributes)):
            path = tmp_path / f"v0/{folder}/{number}.jsonl.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return tmp_path / "v0"


def values_of(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Return all values of all series, as the toolkit takes them."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for key, spans in row.items():
            if isinstance(spans, list):
                for start, end, score in spans or [(0, 0, 0.0)]:
                    score = min(score, 1.0) if "__label__" in key else score
                    found.setdefault(f"{key}/score", []).append(score)
                    found.setdefault(f"{key}/length", []).append(end - start)
            elif not isinstance(spans, str):
                found.setdefault(f"{key}/score", []).append(spans)
    return found


def binned(values: list[tuple[float, int]], bins: int) -> list[tuple[float, int]]:
    """Return the lower edges of bins and what is in each: fine ones, or where these are too many, so many of equal width."""
    fine: dict[tuple[int, int], int] = {}
    for value, count in values:
        mantissa, power = math.frexp(value)
        place = math.floor(mantissa * 100_000), power
        fine[place] = fine.get(place, 0) + count
    edges = sorted((step / 100_000 * 2**power, count) for (step, power), count in fine.items())
    if len(edges) <= bins:
        return edges
    low, width = edges[0][0], (edges[-1][0] - edges[0][0]) / bins
    counts = [0] * bins
    for value, count in edges:
        at = min(int((value - low) / width), bins - 1)
        counts[at] += count
    return [(low + width * number, count) for number, count in enumerate(counts)]


@pytest.mark.parametrize("bins", [7, 1000])
def test_values_are_those_of_a_loop(dataset: Path, tmp_path: Path, bins: int) -> None:
    found = dk.stat(dataset, bins=bins, report=str(tmp_path / "out"), **HERE)
    every = values_of([row for rows in ROWS for row in rows])
    assert {one.name for one in found.series} == every.keys()
    assert "s" in " ".join(found.notes)
    for one in found.series:
        values = sorted(every[one.name])
        assert (one.total, one.min, one.max) == (len(values), values[0], values[-1])
        assert one.sum == pytest.approx(sum(values))
        for share, value in one.quantiles.items():
            assert value == pytest.approx(values[max(1, math.ceil(share * len(values))) - 1], rel=2**-12)
        of_files = [
            binned([(value, 1) for value in known.get(one.name, ())], bins) for known in map(values_of, ROWS)
        ]
        expected = binned([item for edges in of_files for item in edges], bins)
        assert one.counts == tuple(count for _, count in expected)
        assert one.bins[:-1] == pytest.approx([edge for edge, _ in expected])
        assert all(low < high for low, high in pairwise(one.bins))
        assert sum(count for _, _, count in one.ranges) == one.total
    report = gzip.decompress((tmp_path / "out/summaries.jsonl.gz").read_bytes()).splitlines()
    assert [sorted(json.loads(line)) for line in report] == [
        ["bins", "counts", "name", "sum", "total"]
    ] * len(every)


def test_values_that_are_counted_together_change_nothing(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = dk.stat(dataset, **HERE)
    monkeypatch.setattr("dolma_dask.questions.stat.AT_ONCE", 1)
    found = dk.stat(dataset, **HERE)
    assert {one.name: one for one in found.series} == {one.name: one for one in expected.series}


def test_keys_are_chosen_by_a_regular_expression(dataset: Path) -> None:
    assert {one.name for one in dk.stat(dataset, regex="^a$", **HERE).series} == {"a/score", "a/length"}
    with pytest.raises(UsageError, match="found in none of"):
        dk.stat(dataset, regex="^z$", **HERE)
    with pytest.raises(UsageError, match=r"^s: no numbers or spans"):
        dk.stat(dataset, regex="^s$", **HERE)
    with pytest.raises(UsageError, match="expected a regular expression"):
        dk.stat(dataset, regex="(", **HERE)
    with pytest.raises(UsageError, match="another folder"):
        dk.stat(dataset, report=str(dataset / "attributes/t"), **HERE)


def test_a_report_replaces_no_other_unasked(dataset: Path, tmp_path: Path) -> None:
    """The same command again leaves the same bytes; a report of other options and a foreign file stay."""
    report, file = str(tmp_path / "out"), tmp_path / "out/summaries.jsonl.gz"
    dk.stat(dataset, report=report, dry_run=True, **HERE)
    assert not file.exists()
    dk.stat(dataset, report=report, **HERE)
    first, written = file.read_bytes(), file.stat()
    dk.stat(dataset, report=report, **HERE)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    with pytest.raises(UsageError, match=r"holds other values.*--overwrite"):
        dk.stat(dataset, report=report, bins=7, **HERE)
    assert file.read_bytes() == first
    for foreign in (b"words", gzip.compress(b"words"), gzip.compress(b"{}\n"), first[:-9]):
        file.write_bytes(foreign)
        with pytest.raises(UsageError, match=r"no report of stat.*--overwrite"):
            dk.stat(dataset, report=report, **HERE)
        assert file.read_bytes() == foreign
    dk.stat(dataset, report=report, overwrite=True, **HERE)
    assert file.read_bytes() == first
