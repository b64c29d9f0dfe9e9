"""remove in rows of HDF5, of every mode: the documents' positions are padding, all others as they were, and the counts those of the rows."""

import json
import shutil
from collections import defaultdict
from pathlib import Path

import h5py
import numpy as np
import pytest

import dolma_dask as dk
from dolma_dask.outputs.hdf5.options import RowOptions
from dolma_dask.reading.segments import read_segments, token_files

from .test_segments import HERE, ROWS, rows_by_number, world  # noqa: F401

OPTIONS = {name: value for name, value in HERE.items() if name in ("scheduler", "progress")}
GONE = ("é4", "é6", "é13", "é20", "é47", "é50", "é52")


def rows_of(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["data"][:]


def positions(found: list[dict], mode) -> tuple[set, set]:
    """Return the inputs and labels, as (answer, position), that the documents hold in a row."""
    inputs, labels, sides = set(), set(), -1
    runs = defaultdict(list)
    for segment in found:
        sides += segment["first"] == segment["place"] == 0
        runs[sides if mode.name == "DPO" else 0, segment["first"]].append(segment)
    begins = {first for _, first in runs}
    for (side, first), segments in runs.items():
        last = max(one["place"] + one["size"] for one in segments) - 1
        shows = (mode.shows_last or mode.name in ("DPO", "FIM")) and (
            last not in begins or mode.name == "DPO"
        )
        for one in (one for one in segments if one["id"] in GONE):
            for place in range(one["place"], one["place"] + one["size"]):
                if place < mode.length and (place < last or shows):
                    inputs.add((side, place))
                if place > first:
                    labels.add((side, place - 1))
    return inputs, labels


def masked(row: np.ndarray, inputs: set, labels: set, mode) -> np.ndarray:
    row = row.copy()
    for side, place in inputs:
        row[3 * side, place] = mode.specials.pad_id
        if len(row) == 5:
            row[3:, place] = 0
    for side, place in inputs | labels:
        row[3 * side + 1, place] = 1 if mode.inverted_mask else 0
    for side, place in labels:
        row[3 * side + 2, place] = mode.specials.pad_id
    return row


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ROWS)
def test_rows_without_documents(name, shuffle, world, tmp_path):  # noqa: F811
    shutil.copytree(world / "v0", tmp_path / "root/v0")
    given = {"tokenizer": str(world / "tokenizer.json"), **ROWS[name]}
    folder = tmp_path / "root/rows"
    again = {"max_rows_per_file": 4, **given, **HERE, **({"shuffle": True} if shuffle else {})}
    dk.hdf5(tmp_path / "root/v0", folder, **again)
    mode = RowOptions(**given).build(RowOptions(**given).opened())
    names = [file.path for file in token_files(str(folder))]
    before = {one: (rows_of(folder / one), rows_by_number(read_segments(str(folder), one))) for one in names}
    stored = {one: (folder / one).read_bytes() for one in names}
    params = json.loads((folder / "data_params.json").read_text())
    (tmp_path / "ids.txt").write_text("".join(f"{identity}\n" for identity in GONE))
    outcome = dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **OPTIONS)
    assert outcome.exit_status == 0
    pads = losses = 0
    for one, (rows, segments) in before.items():
        after = rows_of(folder / one)
        touched = False
        for number, found in segments.items():
            inputs, labels = positions(found, mode)
            assert np.array_equal(after[number], masked(rows[number], inputs, labels, mode))
            pads += len(inputs)
            touched |= any(segment["id"] in GONE for segment in found)
            kept = [segment for segment in found if segment["id"] not in GONE]
            left = rows_by_number(read_segments(str(folder), one)).get(number, [])
            assert [{**a, "document": 0} for a in left] == [{**b, "document": 0} for b in kept]
            for segment in left:
                line = (tmp_path / "root/v0" / segment["path"]).read_text().split("\n")[segment["document"]]
                assert json.loads(line)["id"] == segment["id"]
        assert touched == ((folder / one).read_bytes() != stored[one])
        for side in range(len(mode.ids)):
            losses += int((after[:, 3 * side + 1] == (0 if mode.inverted_mask else 1)).sum())
    now = json.loads((folder / "data_params.json").read_text())
    assert now["post-process"]["num_pad_tokens"] == params["post-process"]["num_pad_tokens"] + pads
    assert now["post-process"]["loss_valid_tokens"] == losses
    assert now["post-process"]["num_tokens"] == params["post-process"]["num_tokens"]
    made = dk.hdf5(tmp_path / "root/v0", folder, **again)
    assert (made.done, made.counts["pad_tokens"], made.counts["loss_tokens"]) == (
        0,
        now["post-process"]["num_pad_tokens"],
        losses,
    )
    assert json.loads((folder / "data_params.json").read_text()) == now


def test_a_file_that_is_lost_makes_all_anew(world, tmp_path):  # noqa: F811
    """Of documents that are gone no file can be made by itself."""
    shutil.copytree(world / "v0", tmp_path / "root/v0")
    given = {"tokenizer": str(world / "tokenizer.json"), **ROWS["stream"], "max_rows_per_file": 4000, **HERE}
    folder = tmp_path / "root/rows"
    dk.hdf5(tmp_path / "root/v0", folder, **given)
    (tmp_path / "ids.txt").write_text("é6\n")
    dk.remove(str(tmp_path / "root"), ids=str(tmp_path / "ids.txt"), **OPTIONS)
    next(folder.glob("part-*.h5")).unlink()
    made = dk.hdf5(tmp_path / "root/v0", folder, **given)
    dk.hdf5(tmp_path / "root/v0", tmp_path / "fresh", **given)
    assert made.done == len(list(folder.glob("*.h5"))) == 1
    for path in (tmp_path / "fresh").glob("*.h5"):
        assert (folder / path.name).read_bytes() == path.read_bytes()
