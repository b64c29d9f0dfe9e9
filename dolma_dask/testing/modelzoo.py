"""What the loaders of Cerebras ModelZoo 2.2 and 2.10 demand of a folder of rows, as checks with h5py alone.

The map-style loader globs ``*.h5`` of the folder, sorts the paths and reads ``data``; the iterable one trusts ``n_examples`` and takes the names of the
channels from ``data_params.json``. Both train only if all that holds here.
"""

import json
from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

CHANNELS = {
    3: ("input_ids", "attention_mask", "labels"),
    5: ("input_ids", "attention_mask", "labels", "attention_span", "position_ids"),
    6: (
        "chosen_input_ids",
        "chosen_attention_mask",
        "chosen_labels",
        "rejected_input_ids",
        "rejected_attention_mask",
        "rejected_labels",
    ),
}
"""Names of the channels by their number, as the loaders have them."""

OF_MODES = {
    "LMData": 3,
    "FIM": 3,
    "Summarization": 3,
    "LMData_VSL": 5,
    "Summarization_VSL": 5,
    "DPO": 6,
}
"""Channels that the loader of a mode needs; five with ``use_vsl``."""


class Loaded(Struct, frozen=True):
    """What a loader gets of a folder."""

    rows: NDArray[np.int32]  # (n_rows, n_channels, max_seq_length), in the order of the files' names
    sizes: tuple[int, ...]  # rows of each file
    params: dict[str, Any]  # data_params.json


def load_rows(folder: Path, mode: str) -> Loaded:
    """Return the rows of a folder as ModelZoo's loaders get them.

    Raises `AssertionError`: one of them would refuse the folder, or read something else than was written.
    """
    paths = sorted(folder.glob("*.h5"), key=str)
    params = json.loads((folder / "data_params.json").read_text())
    assert paths, f"{folder}: no .h5 file"
    parts = [_read(path) for path in paths]
    shapes = {(part.dtype.str, part.shape[1:]) for part in parts}
    assert len(shapes) == 1, f"{folder}: files differ in type or shape: {shapes}"
    channels = OF_MODES[mode]
    assert parts[0].shape[1] == channels, f"mode {mode} needs {channels} channels, not {parts[0].shape[1]}"
    assert tuple(params["features"]) == CHANNELS[channels], params["features"]
    sizes = tuple(len(part) for part in parts)
    assert max(sizes) - min(sizes) <= 1, f"{folder}: files are uneven, so that a rank has less to do: {sizes}"
    rows = np.concatenate(parts)
    stats = params["post-process"]
    assert stats["n_examples"] == len(rows), f"{stats['n_examples']} rows announced, {len(rows)} there"
    _check_values(rows, stats["vocab_size"])
    return Loaded(rows, sizes, params)


def _read(path: Path) -> NDArray[np.int32]:
    with h5py.File(path, "r") as file:
        assert list(file) == ["data"], f"{path}: datasets {list(file)}"
        data = file["data"]
        assert data.ndim == 3, f"{path}: rank {data.ndim}"
        assert data.dtype == np.dtype("<i4"), f"{path}: {data.dtype}"
        assert data.compression in (None, "gzip", "lzf"), f"{path}: {data.compression} needs a plug-in"
        assert file.attrs["n_examples"] == len(data) > 0, f"{path}: n_examples {file.attrs['n_examples']}"
        rows: NDArray[np.int32] = data[()]
        return rows


def _check_values(rows: NDArray[np.int32], vocab_size: int) -> None:
    """Refuse ids beyond the vocabulary, masks other than 0 and 1, and labels that are not the next ids where something is predicted."""
    starts = (0,) if rows.shape[1] < 6 else (0, 3)
    for start in starts:
        ids, mask, labels = rows[:, start], rows[:, start + 1], rows[:, start + 2]
        assert 0 <= min(ids.min(), labels.min()) <= max(ids.max(), labels.max()) < vocab_size
        assert set(np.unique(mask)) <= {0, 1}
        goes_on = (mask[:, :-1] == 1) & (mask[:, 1:] == 1)
        if rows.shape[1] == 5:
            goes_on &= rows[:, 4, 1:] > 0  # the same sequence
        assert np.array_equal(labels[:, :-1][goes_on], ids[:, 1:][goes_on]), "labels are not the next ids"
    if rows.shape[1] == 5:
        spans, places = rows[:, 3], rows[:, 4]
        assert ((spans >= 0) & (places >= 0) & (spans + places < rows.shape[2])).all()
        within = places[:, 1:] > 0
        assert (np.diff(places, axis=1)[within] == 1).all(), "places do not count up"
        assert (np.diff(spans, axis=1)[within] == -1).all(), "spans do not count down"
