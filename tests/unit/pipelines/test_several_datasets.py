"""A command for several datasets: a place for each, and an end where all of them lack the same."""

from typing import Any

import pytest

from dolma_dask.clusters.local import shared_now
from dolma_dask.errors import ClusterError, CorruptFileError, DiskFullError, StoreUnreachableError, UsageError
from dolma_dask.pipelines.dolma_datasets import apart
from dolma_dask.pipelines.over_all import answers
from dolma_dask.results.summary import Summary


@pytest.mark.parametrize(
    ("roots", "names"),
    [
        (["/a/x"], ["out"]),
        (["/a/x/v0", "/a/y/v0"], ["out/x_v0", "out/y_v0"]),
        (["/a/x", "s3://bucket/x"], ["out/a_x", "out/bucket_x"]),
        (["s3://bucket/x", "s3://bucket/y"], ["out/x", "out/y"]),
        (["s3://bucket/x", "gs://other/x"], ["out/bucket_x", "out/other_x"]),
    ],
)
def test_each_dataset_has_a_place(roots: list[str], names: list[str]) -> None:
    assert list(apart(["out"], roots).values()) == names
    assert apart([], roots) == {}


@pytest.mark.parametrize("roots", [["s3://b/x", "gs://b/x", "gs://b/y"], ["/a/b_c", "/a/b/c"]])
def test_two_datasets_have_no_place_in_common(roots: list[str]) -> None:
    with pytest.raises(UsageError, match=f"{roots[0]} and {roots[1]} would both go into out/"):
        apart(["out"], roots)


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (DiskFullError, 2),
        (StoreUnreachableError, 2),
        (ClusterError, 2),
        (CorruptFileError, 3),
        (PermissionError, 3),
    ],
)
def test_what_all_would_lack_ends_the_command(error: type[Exception], asked: int) -> None:
    """Other errors are of one dataset, and the others get their answers; all of them have one cluster."""
    clusters: list[Any] = []

    def call(failed: bool = False) -> Summary:
        clusters.append(shared_now.get())
        if failed:
            raise error("no more")
        return Summary("v", "")

    made = answers("v", {"a": call, "b": lambda: call(True), "c": call})
    assert len(made.parts) == len(clusters) == asked
    assert made.exit_status == 1
    assert f"b: {error.__name__}: no more" in str(made)
    assert [part["exit_status"] for part in made.to_json()["datasets"]] == [0, 1, 0][:asked]
    assert ("1 dataset behind the last one NOT looked at" in str(made)) == (asked == 2)
    assert clusters[0] is not None
    assert all(one is clusters[0] for one in clusters)
