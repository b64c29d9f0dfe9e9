"""Writers of all formats of token files: types, any batches, what cannot be held."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from token_readers import READERS

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.ragged import RaggedNames, SourceRecord, TokenizerRecord
from dolma_dask.formats.token_files import FORMATS, datatrove_metadata
from dolma_dask.sinks import token_files
from dolma_dask.sinks.sink import DocumentRows
from dolma_dask.sinks.token_files import WRITERS
from dolma_dask.tokens.encoding import Tokens

DOCUMENTS = [[1, 2, 3], [], [65_498], [4], [], [5, 6]]
SOURCE = SourceRecord("documents/a.jsonl.gz", {})


def write(folder: Path, name: str, documents: list[list[int]], vocab_size: int, step: int = 2) -> str:
    """Write documents in batches; return what their files have in common."""
    record = TokenizerRecord("f" * 32, "t.json", vocab_size)
    with WRITERS[name](str(folder), RaggedNames("s"), record, source=SOURCE) as writer:
        for start in range(0, len(documents), step):
            batch = documents[start : start + step]
            ids = np.array([token for one in batch for token in one], np.int64)
            rows = np.arange(start, start + len(batch))
            texts = pa.record_batch({"id": pa.array([f"d{row}" for row in rows], pa.large_string())})
            lengths = np.array([len(one) for one in batch], np.int32)
            writer.write(Tokens(ids, lengths), DocumentRows(texts, rows))
    return str(folder / "s")


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("vocab_size", [65_499, 65_500, 65_536, 65_537, 2**31])
def test_every_vocabulary_is_held(name: str, vocab_size: int, tmp_path: Path) -> None:
    documents = [*DOCUMENTS, [min(vocab_size - 1, 2**31 - 1)]]
    assert READERS[name](write(tmp_path, name, documents, vocab_size)) == documents


def test_types_are_those_that_readers_expect() -> None:
    limits = {
        "parquet": {"int32": 2**31 - 1},
        "dolma": {"uint16": 65_535, "uint32": 2**32 - 1},
        "megatron": {"uint16": 65_498, "int32": 2**31 - 1},
        "datatrove": {"uint16": 65_535, "uint32": 2**32 - 1},
    }
    for name, known in limits.items():
        smallest = 0
        for dtype, largest in known.items():
            assert {FORMATS[name].dtype(smallest).name, FORMATS[name].dtype(largest).name} == {dtype}
            smallest = largest + 1
    with pytest.raises(UsageError, match=r"largest token id is 2147483648, expected 0 to 2147483647"):
        FORMATS["megatron"].dtype(2**31)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_batches_change_no_byte(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "GROUP_TOKENS", 40)
    seen = set()
    for step in (1, 2, 4, 60):
        write(tmp_path / str(step), name, DOCUMENTS * 5, 70_000, step)
        seen.add(tuple(path.read_bytes() for path in sorted((tmp_path / str(step)).iterdir())))
    assert len(seen) == 1
    if name == "parquet":
        assert pq.ParquetFile(tmp_path / "1/s.parquet").num_row_groups == 10


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_shard_without_documents_is_valid(name: str, tmp_path: Path) -> None:
    assert READERS[name](write(tmp_path, name, [], 300)) == []


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_an_id_outside_of_the_vocabulary_leaves_nothing(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="token 1 of the batch has id 300, expected 0 to 299"):
        write(tmp_path, name, [[1], [], [2, 300]], 300)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("tokens", "brief"),
    [(0, "0.00 T"), (7, "7.00 T"), (12_345, "12.3 kT"), (999_999, "1000 kT"), (10**9, "1.00 GT")],
)
def test_datatrove_is_told_the_number_of_tokens_in_brief(tokens: int, brief: str) -> None:
    assert datatrove_metadata("t", np.dtype("<u2"), tokens) == f"t|2\n{tokens}\n{brief}".encode()
