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


def written(url: str, content: bytes, step: int = 50_000) -> str:
    """Write a staging file and return its checksum."""
    with stage(url) as out:
        for at in range(0, len(content), step):
            out.write(content[at : at + step])
        assert out.bytes == len(content)
    assert content_bytes(out.bytes) == len(content)
    assert files.stat(url).bytes == out.bytes
    return out.checksum


@pytest.mark.parametrize("size", SIZES)
def test_all_of_it_and_any_part(size, tmp_path):
    url, content = str(tmp_path / "a.bin"), content_of(size)
    with StagingReader(url, written(url, content)) as file:
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
    checksum = written(str(path), content)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"a\.bin is damaged"):
        list(StagingReader(str(path), checksum).parts())
    assert not path.exists()


@pytest.mark.parametrize("size", [1, 5, BLOCK, BLOCK + 8, 2 * BLOCK + 5])
def test_a_file_that_ends_too_early_is_damaged(size, tmp_path):
    path = tmp_path / "a.bin"
    checksum = written(str(path), content_of(size))
    stored = path.read_bytes()
    for left in {0, 1, 7, 8, BLOCK, BLOCK + 8, len(stored) - 8, len(stored) - 1} & set(range(len(stored))):
        path.write_bytes(stored[:left])
        with pytest.raises(CorruptFileError, match="is damaged"):
            StagingReader(str(path), checksum).read(size - 1, 1)


def test_what_a_power_failure_leaves(tmp_path):
    """A file of the right size, all zeros; or an empty one, although nothing of it is read."""
    path = tmp_path / "a.bin"
    checksum = written(str(path), content_of(3000))
    for left in (bytes(3008), b""):
        path.write_bytes(left)
        with pytest.raises(CorruptFileError):
            StagingReader(str(path), checksum).parts()


def test_a_whole_file_of_another_call_is_not_believed(tmp_path):
    checksum = written(str(tmp_path / "ours.bin"), b"ours")
    written(str(tmp_path / "theirs.bin"), b"them")
    with pytest.raises(CorruptFileError, match="what another call has written"):
        StagingReader(str(tmp_path / "theirs.bin"), checksum)


def test_a_store(tmp_path):
    url, content = "memory://staging/a.bin", content_of(BLOCK + 3)
    with StagingReader(url, written(url, content)) as file:
        assert file.read(BLOCK - 1, 4) == content[-4:]


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(FileNotFoundError):
        StagingReader(str(tmp_path / "a.bin"), "")
