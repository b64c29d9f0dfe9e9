"""Datasets as dataframes and bags, in one process, past start-up: .jsonl.gz and its attributes in, pandas out; and what projections save."""

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bench_verbs import OPTIONS, TAGGERS, tagged
from benchmarks.harness import Goal, Job, benchmark, peak_megabytes

GOPHER = ["gopher_v2"]
WORD_COUNT = "gopher_v2__gopher_v2__word_count"
COLUMNS = ["id", "source", "text"]
PART_BYTES = 8_000_000


def _frame(root: str, **options: Any) -> Any:
    from dolma_dask.frames.dataframe import read_dataframe

    return read_dataframe(root, COLUMNS, GOPHER, **options)


def _rows(df: Any) -> int:
    """Read all columns of every partition, one after the other; keep none."""
    sizes = df.map_partitions(len, meta=("rows", "int64")).compute(scheduler="synchronous")
    return int(sizes.sum())


def _measure(job: Job, root: str, work: Callable[[Any], object], **options: Any) -> object:
    work(_frame(tagged(job, "warm")))
    before = peak_megabytes()
    with job.measured(job.corpus.text_mb):
        found = work(_frame(root, **options))
    result = job.result
    assert result is not None
    note = f"{result.peak - before:.0f} MB above a warm process"
    job.result = type(result)(result.megabytes, result.cpu, result.wall, result.peak, note)
    return found


@benchmark("frame", goal=Goal("speed", 100), beside="frame-loop")
def frame(job: Job) -> None:
    """id, source, text and the 19 attributes of gopher_v2; partitions of up to 64 MB."""
    assert _measure(job, tagged(job, "all"), _rows) == job.corpus.documents


@benchmark("frame-shards", beside="frame")
def frame_shards(job: Job) -> None:
    """The same, a partition per shard."""
    assert _measure(job, tagged(job, "all"), _rows, partition_bytes=None) == job.corpus.documents


@benchmark("frame-parts", beside="frame-shards")
def frame_parts(job: Job) -> None:
    """The same from our own files, each cut into parts of 8 MB: members are entered, and ids compared in each part."""
    import dolma_dask as dk

    with tempfile.TemporaryDirectory(dir=job.scratch) as folder:
        root = f"{folder}/v0"
        dk.convert(job.corpus.dataset("all/documents"), to=root, **OPTIONS)
        dk.tag(root, TAGGERS, **OPTIONS)
        assert _measure(job, root, _rows, partition_bytes=PART_BYTES) == job.corpus.documents


@benchmark("frame-id")
def frame_id(job: Job) -> None:
    """Only ``df["id"]``: lines are checked, no text is made."""
    assert _measure(job, tagged(job, "all"), lambda df: _rows(df["id"])) == job.corpus.documents


@benchmark("frame-attribute")
def frame_attribute(job: Job) -> None:
    """The mean of one of the 19 attributes: documents stay closed."""
    mean = _measure(
        job, tagged(job, "all"), lambda df: df[WORD_COUNT].mean().compute(scheduler="synchronous")
    )
    assert mean > 10  # type: ignore[operator]


@benchmark("frame-length")
def frame_length(job: Job) -> None:
    """``len(df)``: from the journal; this is the cost of opening the dataset."""
    assert _measure(job, tagged(job, "all"), len) == job.corpus.documents


@benchmark("frame-loop")
def frame_loop(job: Job) -> None:
    """The same columns with gzip, json and pandas, a shard at a time."""
    import pandas as pd

    root, rows = Path(tagged(job, "all")), 0
    pd.DataFrame({"id": ["warm"]})
    with job.measured(job.corpus.text_mb):
        for path in map(Path, job.corpus.files()):
            with (
                gzip.open(path, "rb") as documents,
                gzip.open(root / "attributes/gopher_v2" / path.name, "rb") as attributes,
            ):
                found = pd.DataFrame(
                    _merged(line, other) for line, other in zip(documents, attributes, strict=True)
                )
            rows += len(found)
    assert rows == job.corpus.documents


def _merged(line: bytes, other: bytes) -> dict[str, Any]:
    document, tagged_row = json.loads(line), json.loads(other)
    assert document["id"] == tagged_row["id"]
    values = {key: spans[0][2] if spans else None for key, spans in tagged_row["attributes"].items()}
    return {name: document[name] for name in COLUMNS} | values


@benchmark("bag", beside="frame")
def bag(job: Job) -> None:
    """The same as dicts, counted."""
    from dolma_dask.frames.dataframe import read_bag

    def count(root: str) -> object:
        return read_bag(root, COLUMNS, GOPHER).count().compute(scheduler="synchronous")

    count(tagged(job, "warm"))
    root = tagged(job, "all")
    with job.measured(job.corpus.text_mb):
        assert count(root) == job.corpus.documents
