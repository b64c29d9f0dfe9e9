"""Indexes of ids: what is found is what was put in, however it was merged; damage is an error."""

import numpy as np
import pyarrow as pa
import pytest

from dolma_dask.errors import CorruptFileError
from dolma_dask.reading import id_index
from dolma_dask.reading.id_index import IdIndex, Places, Renumbered, key_of, place_of, write_index

ODD = ["", "a", "a b", '"quoted"', "naïve/\U0001f600", "x" * 100_000, "\0", "it's"]


def records(ids, file):
    return Places.joined([Places.of(pa.array(ids, pa.large_string()), file, np.arange(len(ids)))])


def lookup(path, id):
    return [place_of(place) for place in IdIndex(path).find(key_of(id))]


@pytest.fixture(params=[1, 3, 4096])
def block(request, monkeypatch):
    monkeypatch.setattr(id_index, "BLOCK", request.param)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("merged", [4, 1 << 22])
def test_every_row_of_every_id_is_found_and_no_other(tmp_path, monkeypatch, merged):
    monkeypatch.setattr(id_index, "MERGED", merged)
    draw = np.random.default_rng(3)
    columns = [
        [ODD[i] if i < len(ODD) else str(i) for i in draw.integers(0, 30, size)] for size in (0, 50, 1, 40)
    ]
    write_index(tmp_path / "ids", [records(ids, file) for file, ids in enumerate(columns)])
    for id in [*ODD, *map(str, range(8, 32))]:
        wanted = [(f, row) for f, ids in enumerate(columns) for row, own in enumerate(ids) if own == id]
        assert lookup(tmp_path / "ids", id) == wanted


def test_rows_without_ids_are_not_there(tmp_path):
    write_index(tmp_path / "ids", [records(["a", None, "", "a"], 5)])
    assert len(IdIndex(tmp_path / "ids")) == 3
    assert lookup(tmp_path / "ids", "a") == [(5, 0), (5, 3)]


@pytest.mark.usefixtures("block")
def test_files_get_other_numbers_and_those_that_are_gone_leave(tmp_path):
    write_index(
        tmp_path / "old", [records(["a", "b"], 0), records(["a", "c"], 1), records(["b"], 2)], b"head"
    )
    assert IdIndex(tmp_path / "old").head == b"head"
    old = Renumbered(IdIndex(tmp_path / "old"), np.array([1, -1, 3]))
    write_index(tmp_path / "new", [old, records(["a", "a"], 2)])
    assert lookup(tmp_path / "new", "a") == [(1, 0), (2, 0), (2, 1)]
    assert lookup(tmp_path / "new", "b") == [(1, 1), (3, 0)]
    assert lookup(tmp_path / "new", "c") == []


@pytest.mark.usefixtures("block")
def test_an_index_of_nothing_is_one(tmp_path):
    write_index(tmp_path / "ids", [])
    assert lookup(tmp_path / "ids", "a") == []
    write_index(tmp_path / "again", [IdIndex(tmp_path / "ids")])
    assert len(IdIndex(tmp_path / "again")) == 0


def test_no_damage_passes(tmp_path):
    path, ids = tmp_path / "ids", [f"d{row}" for row in range(50)]
    write_index(path, [records(ids, 0)], b'{"x":1}')
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if at >= 16:  # the magic in front is for people
            with pytest.raises(CorruptFileError, match="is damaged"):
                IdIndex(path).slice(0, 50)
    for size in (0, 10, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError, match="is damaged"):
            IdIndex(path).slice(0, 50)
