"""Staging files: what is read is what was written, or an error; the plain oracle is the content itself."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dolma_dask.errors import CorruptFileError
from dolma_dask.io import files
from dolma_dask.io.staging import BLOCK, StagingReader, content_bytes, stage

SIZES = [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 8, 3 * BLOCK - 7]


def content_of(size: int) -> bytes:
    return bytes(at * 131 % 251 for at in range(size))


def written(url: str, content: bytes, step: int = 50_000) -> int:
    with stage(url) as out:
        for at in range(0, len(content), step):
            out.write(content[at : at + step])
        assert out.bytes == len(content)
    return out.bytes


@pytest.mark.parametrize("size", SIZES)
def test_all_of_it_and_any_part(size, tmp_path):
    url, content = str(tmp_path / "a.bin"), content_of(size)
    stored = written(url, content)
    assert files.stat(url).bytes == stored
    assert content_bytes(stored) == size
    with StagingReader(url) as file:
        assert file.bytes == size
        assert b"".join(file.parts()) == content
        for first in range(0, size + 1, 40_000):
            for count in (0, 1, BLOCK, 100_000):
                assert file.read(first, min(count, size - first)) == content[first : first + count]


@given(st.integers(0, 10 * BLOCK))
@example(BLOCK)
@example(BLOCK + 1)
def test_the_size_of_the_content_follows_from_that_of_the_file(size):
    assert content_bytes(size + 8 * -(-size // BLOCK)) == size


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 2 * BLOCK + 4, -1, -20])
def test_a_changed_byte_is_found_where_it_is_read(at, tmp_path):
    path, content = tmp_path / "a.bin", content_of(2 * BLOCK + 5)
    written(str(path), content)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with StagingReader(str(path)) as file, pytest.raises(CorruptFileError, match=r"a\.bin is damaged"):
        list(file.parts())
    assert not path.exists()


@pytest.mark.parametrize("left", [0, 1, 7, 8, BLOCK, BLOCK + 8, 2 * BLOCK + 5])
def test_a_file_that_ends_too_early_is_damaged(left, tmp_path):
    path = tmp_path / "a.bin"
    written(str(path), content_of(2 * BLOCK + 5))
    path.write_bytes(path.read_bytes()[:left])
    with StagingReader(str(path)) as file, pytest.raises(CorruptFileError, match="is damaged"):
        file.read(2 * BLOCK, 5)


def test_what_a_power_failure_leaves(tmp_path):
    """A file of the right size, all zeros."""
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(written(str(path), content_of(3000))))
    with StagingReader(str(path)) as file, pytest.raises(CorruptFileError):
        file.read(10, 1)


def test_a_store(tmp_path):
    url, content = "memory://staging/a.bin", content_of(BLOCK + 3)
    written(url, content)
    with StagingReader(url) as file:
        assert file.read(BLOCK - 1, 4) == content[-4:]


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(FileNotFoundError):
        StagingReader(str(tmp_path / "a.bin"))
