"""Rows of token files that are damaged: an error that names the file."""

from pathlib import Path

import pytest

from dolma_dask.errors import CorruptFileError
from dolma_dask.loaders.token_rows import read_ids


@pytest.mark.parametrize(
    "name, beside, about",
    [
        ("a.h5", "", b""),
        ("a.npy", "a.json", b'{"dtype": "nonsense"}'),
        ("a.npy", "a.json", b'{"dtype": 5}'),
        ("a.npy", "a.json", b'{"dtype": "<u2"}'),  # the ids end before the row does
        ("a.ds", "a.ds.metadata", b"t|99"),
        ("a.bin", "a.idx", b"MM"),
        ("a.mds", "", b""),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, beside: str, about: bytes) -> None:
    (tmp_path / name).write_bytes(bytes(8))
    if beside:
        (tmp_path / beside).write_bytes(about)
    with pytest.raises(CorruptFileError, match=rf"{name}: row 0 cannot be read"):
        read_ids(str(tmp_path / name), 0, 0, 5)


def test_a_file_that_is_gone_is_not_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_ids(str(tmp_path / "a.h5"), 0, 0, 5)
