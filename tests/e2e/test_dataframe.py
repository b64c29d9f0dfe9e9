"""Dataframes and bags on a cluster of processes: the same rows, only what is needed is parsed there, and errors arrive as they are."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pandas as pd
import pytest

import dolma_dask as dk
from dolma_dask.errors import AlignmentError, BadRecordError, StaleAttributesError
from dolma_dask.frames.dataframe import read_bag, read_dataframe

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "frames"))

from partition_worlds import COUNT, FIELDS, LENGTH, MANY, ROWS, expected, make_dataset, rewrite, values

pytestmark = pytest.mark.e2e

COLUMNS = ("id", "text", "source", "metadata", *FIELDS)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with dk.cluster("laptop", workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Gzip files in members of a few rows; not to be changed."""
    return make_dataset(tmp_path_factory.mktemp("frames") / "v0", ROWS)


@pytest.fixture
def own(root, tmp_path) -> Path:
    return Path(shutil.copytree(root, tmp_path / "v0"))


@pytest.fixture
def parsed(client) -> Iterator[Any]:
    """Have workers write down what they parse; call the value to get and forget it."""

    def watch() -> None:
        from dolma_dask.io import attributes, documents

        seen: set[str] = set()
        scan_documents, scan_attributes = documents.scan_documents, attributes.scan_attributes

        def documents_scanned(data, starts, wanted):
            seen.update(item.name for item in wanted)
            return scan_documents(data, starts, wanted)

        def attributes_scanned(data, starts, kinds, form, **options):
            seen.update(kinds)
            return scan_attributes(data, starts, kinds, form, **options)

        documents.scan_documents, attributes.scan_attributes = documents_scanned, attributes_scanned
        documents.watched = seen, scan_documents, scan_attributes

    def forget() -> set[str]:
        from dolma_dask.io import documents

        found = set(documents.watched[0])
        documents.watched[0].clear()
        return found

    def unwatch() -> None:
        from dolma_dask.io import attributes, documents

        _, documents.scan_documents, attributes.scan_attributes = documents.watched

    client.run(watch)
    yield lambda: set().union(*client.run(forget).values())
    client.run(unwatch)


@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_a_cluster_gives_the_same_rows_in_order(client, root, partition_bytes):
    df = read_dataframe(str(root), COLUMNS, "all", partition_bytes=partition_bytes)
    found = df.compute()
    for name in df.columns:
        assert values(found[name]) == expected(ROWS, name), name
    assert (found.dtypes == df.dtypes).all()
    pd.testing.assert_frame_equal(found, df.compute(scheduler="synchronous"))
    pd.testing.assert_frame_equal(found, df.persist().compute())
    bag = read_bag(str(root), COLUMNS, "all", partition_bytes=partition_bytes)
    assert bag.pluck("metadata").compute() == expected(ROWS, "metadata")


def test_a_shuffle_keeps_types(client, root):
    df = read_dataframe(str(root), ["id", "source"], ["shape_v1"], partition_bytes=MANY)
    found = df[["source", LENGTH, "id"]].shuffle("source").compute()
    assert sorted(found["id"]) == sorted(expected(ROWS, "id"))
    assert (found.dtypes == df.dtypes[found.columns]).all()


@pytest.mark.parametrize("partition_bytes", [MANY, None])
def test_workers_parse_only_what_is_needed(client, root, parsed, partition_bytes):
    df = read_dataframe(str(root), COLUMNS, "all", partition_bytes=partition_bytes)
    cases = [
        (lambda: df["id"].compute(), {"id"}),
        (lambda: df[COUNT].mean().compute(), {COUNT}),
        (lambda: df[df[COUNT] > 4]["id"].compute(), {"id", COUNT}),
        (lambda: df.groupby("source")[LENGTH].mean().compute(), {"source", LENGTH}),
        (lambda: df[LENGTH].quantile([0.1, 0.9]).compute(), {LENGTH}),
        (lambda: dask.compute(*df[["source"]].to_delayed()), {"source"}),
        (lambda: len(df), set()),
    ]
    parsed()
    for compute, wanted in cases:
        compute()
        assert parsed() - ({"id", "source"} if partition_bytes else set()) == wanted - (
            {"id", "source"} if partition_bytes else set()
        )


def test_documents_stay_closed_in_workers(client, own):
    """Nothing of the documents is left but their size and time."""
    for path in (own / "documents").rglob("*.gz"):
        found = path.stat()
        path.write_bytes(bytes(found.st_size))
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    for partition_bytes in (MANY, None):
        df = read_dataframe(str(own), ["id"], ["shape_v1"], partition_bytes=partition_bytes)
        assert values(df[COUNT].compute()) == expected(ROWS, COUNT)
        assert len(df) == sum(map(len, ROWS.values()))


def test_errors_arrive_as_they_are(client, own):
    rewrite(own / "attributes/shape_v1/a.jsonl.gz", lambda lines: lines[:-1])
    df = read_dataframe(str(own), ["id"], ["shape_v1"], partition_bytes=MANY)
    with pytest.raises(
        AlignmentError, match=r"shape_v1/a\.jsonl\.gz has 39 rows, documents/a\.jsonl\.gz has 40"
    ) as caught:
        df[COUNT].sum().compute()
    assert caught.value.details["row"] == 39
    rewrite(own / "documents/z.jsonl.gz", lambda lines: [line.replace(b"the", b"THE") for line in lines])
    with pytest.raises(StaleAttributesError, match=r"is stale: documents/z\.jsonl\.gz"):
        read_dataframe(str(own), ["id"], ["shape_v1"], only="z.jsonl")[["id", COUNT]].compute()
    rewrite(own / "documents/z.jsonl.gz", lambda lines: [*lines, b"oops\n"])
    with pytest.raises(BadRecordError, match=r"z\.jsonl\.gz, row 30, byte \d+: invalid json"):
        read_dataframe(str(own), ["id"], only="z.jsonl").compute()
    with pytest.raises(BadRecordError, match="row 30"):
        read_bag(str(own), ["id"], only="z.jsonl").compute()
