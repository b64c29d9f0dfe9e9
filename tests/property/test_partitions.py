"""Laws of partitions: any cut of any dataset gives the same rows, and any projection what the whole gives."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import fsspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

from dolma_dask.formats.attributes import AttributeColumn
from dolma_dask.frames.cutting import ranges
from dolma_dask.frames.dataframe import read_dataframe
from dolma_dask.io.stored import Member
from dolma_dask.journal import Journal, Record
from dolma_dask.reading.entry_points import Extent
from dolma_dask.sinks import jsonl
from dolma_dask.sinks.attributes import AttributeWriter
from dolma_dask.sinks.documents import open_writer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "frames"))

from partition_worlds import (
    ATTRIBUTES,
    FIELDS,
    FORMATS,
    ROWS,
    expected,
    make_dataset,
    values,
)

ROOT = "memory://partitions"
COLUMNS = ("id", "text", "source", "metadata", *FIELDS, *ATTRIBUTES)


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield
    fs = fsspec.filesystem("memory")
    if fs.exists("/partitions"):
        fs.rm("/partitions", recursive=True)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str | None], Path]:
    folder = tmp_path_factory.mktemp("worlds")
    return {pair: make_dataset(folder / f"{pair[0]}-{pair[1]}", ROWS, *pair) for pair in FORMATS}


SIZES = st.integers(1, 12_000) | st.integers(60_000, 400_000) | st.none()


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(FORMATS),
    SIZES,
    st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True),
    st.booleans(),
)
def test_any_cut_and_any_projection_give_the_same_rows(
    worlds: dict[tuple[str, str | None], Path],
    pair: tuple[str, str | None],
    size: int | None,
    names: list[str],
    is_direct: bool,
) -> None:
    """`is_direct`: only these columns are asked; else they are projected from all."""
    root = str(worlds[pair])
    df = read_dataframe(root, names if is_direct else COLUMNS, partition_bytes=size)
    found = df[names].compute()
    assert list(found.columns) == names
    assert len(found) == len(df) == sum(map(len, ROWS.values()))
    for name in names:
        assert values(found[name]) == expected(ROWS, name)
        assert found[name].dtype == df[name].dtype


TEXTS = st.text(max_size=30)
DOCUMENTS = st.lists(st.tuples(TEXTS, st.none() | st.floats(-1e6, 1e6), TEXTS | st.none()), max_size=25)


@settings(max_examples=examples(25))
@given(
    DOCUMENTS,
    st.sampled_from(["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"]),
    st.sampled_from(["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.parquet"]),
    st.integers(1, 300),
    st.integers(1, 300),
    SIZES,
    st.booleans(),
)
def test_documents_and_attributes_of_all_kinds_stay_in_step(
    rows: list[tuple[str, float | None, str | None]],
    name: str,
    attributes: str,
    member_bytes: int,
    attribute_bytes: int,
    size: int | None,
    has_journal: bool,
) -> None:
    fs = fsspec.filesystem("memory")
    if fs.exists("/partitions/v0"):
        fs.rm("/partitions/v0", recursive=True)
    root = f"{ROOT}/v0"
    files = [_documents(root, f"documents/{name}", rows, member_bytes)]
    files.append(_attributes(root, f"attributes/g/{attributes}", rows, attribute_bytes))
    if has_journal:
        writer = Journal(root, "other").start({}, ("",), "0")
        writer.add(Record("u", name, "k", files=tuple(files), rows=len(rows), finished=1.0))
        writer.close()
    df = read_dataframe(root, ["id", "text"], ["g"], partition_bytes=size)
    found = df.compute()
    assert len(df) == len(rows)
    assert found["id"].tolist() == [f"d{number}" for number in range(len(rows))]
    assert found["text"].tolist() == [row[0] for row in rows]
    for key, wanted in {"n": [row[1] for row in rows], "s": [row[2] for row in rows]}.items():
        if key in df.columns:
            assert values(df[key].compute()) == values(found[key]) == wanted
        else:
            assert not any(value is not None for value in wanted), "a key that no row has is unknown"


def _documents(root: str, path: str, rows: list[tuple[str, Any, Any]], member_bytes: int) -> Any:
    lines = [
        json.dumps({"id": f"d{number}", "text": row[0], "source": "s"}).encode() + b"\n"
        for number, row in enumerate(rows)
    ]
    with _members(member_bytes), open_writer(root, path) as writer:
        writer.write(pa.array(lines, pa.large_binary()))
    return writer.record


def _attributes(root: str, path: str, rows: list[tuple[Any, Any, Any]], member_bytes: int) -> Any:
    ids = pa.array([f"d{number}" for number in range(len(rows))], pa.large_string())
    sources = pa.array(["s"] * len(rows), pa.large_string())
    columns = [
        AttributeColumn("n", "scalar", pa.array([row[1] for row in rows], pa.float64())),
        AttributeColumn("s", "scalar", pa.array([row[2] for row in rows], pa.large_string())),
    ]
    with _members(member_bytes), AttributeWriter(root, path) as writer:
        writer.write(ids, sources, np.ones(len(rows), np.int64), columns, {})
    return writer.record


@contextmanager
def _members(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl, "MEMBER_BYTES", size)
        patch.setattr("dolma_dask.sinks.documents.ROW_GROUP_BYTES", size)
        patch.setattr("dolma_dask.sinks.documents.CHUNK_BYTES", max(size // 3, 1))
        patch.setattr("dolma_dask.sinks.attributes.ROW_GROUP_ROWS", size // 30 + 1)
        yield


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 1000)), min_size=1, max_size=20),
    st.integers(1, 5000),
)
def test_ranges_cover_a_file_in_order(members: list[tuple[int, int]], size: int) -> None:
    """Members of so many rows and bytes."""
    places, row, offset = [], 0, 0
    for number, (rows, length) in enumerate(members):
        places.append(Member(number, row, offset))
        row, offset = row + rows, offset + length
    parts = ranges(Extent(offset, row, tuple(places)), size)
    if not parts:
        assert len(members) == 1 or offset <= size
        return
    assert parts[0].section.start == places[0]
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert sum(part.rows for part in parts) == row
    ends = [*(part.section.start for part in parts[1:]), Member(len(members), row, offset)]
    for part, end in zip(parts, ends, strict=True):
        assert part.first_row + part.rows == end.row
        assert part.section.stop_offset == (None if part.is_last else end.offset)
        held = end.offset - part.section.start.offset
        assert held == 1 or end.text_offset - part.section.start.text_offset <= size
    for part, following in pairwise(parts):
        first = members[following.section.start.offset][1]
        assert following.section.start.text_offset + first - part.section.start.text_offset > size
