"""Packings of the sequences of create_hdf5_dataset: as many rows as it makes, and as others were measured to make."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from dolma_dask.tokens.bins import PACKINGS, Bins, modelzoo

pytestmark = pytest.mark.conformance

LENGTH = 256


def chunks(shared: Path, name: str) -> list[np.ndarray]:
    """Return the rows of each chunk, in the order in which they were written."""
    found = (shared / "conformance/cerebras/cases" / name).glob("output_chunk_*.h5")
    rows = []
    for path in sorted(found, key=lambda path: int(path.stem.rsplit("_", 1)[-1])):
        with h5py.File(path) as file:
            rows.append(file["data"][:])
    return rows


def sizes_of(rows: np.ndarray) -> np.ndarray:
    return rows[:, 1].sum(axis=1, dtype=np.int64)


def test_numbers_of_rows(shared):
    """All in one window; the original makes 508, first-fit decreasing 502, and the tokens alone would need 500."""
    sizes = np.concatenate([sizes_of(rows) for rows in chunks(shared, "lm_neox_nopack")])
    rows = {name: len(pack(sizes, LENGTH, None)) for name, pack in PACKINGS.items()}
    assert -(-sizes.sum() // LENGTH) == 500
    assert rows == {"best_fit": 502, "modelzoo": 508, "next_fit": 563, "spfhp": 502, "lpfhp": 502}


def sizes_in(rows: np.ndarray) -> list[list[int]]:
    """Return the sizes of the segments of packed rows: positions of a segment begin with 0."""
    starts = [np.flatnonzero((row[4] == 0) & (row[1] == 1)) for row in rows]
    return [np.diff(start, append=size).tolist() for start, size in zip(starts, sizes_of(rows), strict=True)]


def sizes_by(bins: Bins, sizes: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(sizes[bins.order], bins.bounds[1:-1])]


@pytest.mark.parametrize("chunk", [0, 2, 3])
def test_rows_of_a_chunk_hold_what_the_original_puts_there(chunk, shared):
    """The chunks whose sequences are the same padded and packed; of the others padding drops one that is too short."""
    sizes = sizes_of(chunks(shared, "lm_neox_nopack")[chunk])
    expected = sizes_in(chunks(shared, "vsl_neox")[chunk])
    assert sizes_by(modelzoo(sizes, LENGTH), sizes) == expected
