"""lengths: counts and waste are those of a loop over the documents; only lengths are read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError

HERE: Any = {"scheduler": "synchronous", "progress": False}

LENGTHS = [[5, 0, 1, 12], [2, 300, 33], []]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tokens")
    for number, counts in enumerate(LENGTHS):
        stem = f"{'en' if number < 2 else 'de'}.{number % 2:05d}-of-{2 if number < 2 else 1:05d}"
        np.save(folder / f"{stem}.data.npy", np.zeros(sum(counts), np.uint16))
        np.save(folder / f"{stem}.len.npy", np.array(counts, np.int32))
    return str(folder)


def test_sums_and_quantiles_by_group(folder: str) -> None:
    frame = dk.lengths(folder, **HERE).frame()
    every = sorted([tokens for shard in LENGTHS for tokens in shard])
    assert frame.loc["all", ["documents", "tokens", "p50_tokens", "max_tokens"]].tolist() == [7, 353, 5, 300]
    assert frame.loc["en", "documents"] == len(every)
    assert frame.loc["de", "documents"] == 0


@pytest.mark.parametrize("length", [1, 4, 32, 299, 1000])
def test_waste_is_that_of_a_loop(folder: str, length: int) -> None:
    every = [tokens for shard in LENGTHS for tokens in shard]
    rows = [max(-(-(tokens - 1) // length), 0) for tokens in every]
    predicted = sum(max(tokens - 1, 0) for tokens in every)
    packed = -(-(sum(every) - 1) // length)
    (found,) = dk.lengths(folder, **HERE).waste([length]).to_dict("records")
    assert found == {
        "seq_length_tokens": length,
        "rows_of_documents": sum(rows),
        "padding_of_documents": pytest.approx(1 - predicted / (sum(rows) * length)),
        "cut_documents": sum(tokens > length + 1 for tokens in every),
        "rows_packed": packed,
        "padding_packed": pytest.approx(1 - (sum(every) - 1) / (packed * length)),
    }


def test_the_figure_counts_all_documents(folder: str) -> None:
    figure = dk.lengths(folder, **HERE).plot(seq_lengths=(4, 32))
    assert figure.frame()["documents"].sum() == 7
    assert [value for _, value in figure.panels[0].threshold] == [4.0, 32.0]
    assert figure.notes[1] == "longer than a row: 42.9 % of 4, 14.3 % of 32"


def test_other_folders_and_lengths_are_refused(folder: str, tmp_path: Path) -> None:
    (tmp_path / "part.h5").write_bytes(b"")
    for rows in (tmp_path, tmp_path / "part.h5"):
        with pytest.raises(UsageError, match=r"holds rows of HDF5.*dolma-dask ragged"):
            dk.lengths(str(rows), **HERE)
    (tmp_path / "part.h5").unlink()
    with pytest.raises(UsageError, match="holds no"):
        dk.lengths(str(tmp_path), **HERE)
    with pytest.raises(UsageError, match="tokens=3 is of type int"):
        dk.lengths(3, **HERE)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="seq_lengths"):
        dk.lengths(folder, **HERE).waste([0])
