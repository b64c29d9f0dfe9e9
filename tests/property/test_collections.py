"""The law of writing attributes back: what is read and written is what was there, wherever the dataset is cut."""

import sys
from pathlib import Path

import dask
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

from dolma_dask.dataset import open_dataset
from dolma_dask.frames.attributes import write_attributes
from dolma_dask.frames.dataframe import read_bag, read_dataframe

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "frames"))

from partition_worlds import ATTRIBUTES, FORMATS, ROWS, expected, make_dataset, values

KEPT = [name for name in ATTRIBUTES if "." not in name]
"""Columns that are named as keys, and keep their names."""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str | None], Path]:
    folder = tmp_path_factory.mktemp("worlds")
    return {pair: make_dataset(folder / f"{pair[0]}-{pair[1]}", ROWS, *pair) for pair in FORMATS[:2]}


@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pair=st.sampled_from(FORMATS[:2]),
    partition_bytes=st.integers(300, 12_000) | st.none(),
    is_bag=st.booleans(),
)
def test_what_is_read_and_written_is_the_same(worlds, pair, partition_bytes, is_bag):
    root, sets = str(worlds[pair]), ["shape_v1", "first_v1", "scores_v1"]
    read = read_bag if is_bag else read_dataframe
    with dask.config.set(scheduler="synchronous"):
        frame = read(root, ["id", "source"], sets, partition_bytes=partition_bytes)
        write_attributes(frame, root, "copy", partition_bytes=partition_bytes, overwrite=True, format=pair[1])
        found = read_dataframe(open_dataset(root), ["id"], ["copy"], partition_bytes=None).compute()
    for name in KEPT:
        assert values(found[name]) == expected(ROWS, name), name
    assert values(found["copy__copy__scores_v1__scores_v1__score_en"]) == [
        round(score, 5) for score in expected(ROWS, "scores_v1__scores_v1__score.en")
    ]
