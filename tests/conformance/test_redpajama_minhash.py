"""MinHash tables of RedPajama-V2: signed, written and read again, they are the published pipeline's, value for value."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.formats.redpajama import BANDS
from dolma_dask.io.redpajama import read_minhash
from dolma_dask.minhash.published import mersenne_draws, sign_redpajama
from dolma_dask.minhash.schemes import EMPTY, SHORT, SIGNED
from dolma_dask.sinks.redpajama import MinHashTable

pytestmark = pytest.mark.conformance


def published(shared: Path) -> list[Path]:
    tables = sorted((shared / "conformance/rpv2/minhash").rglob("*.minhash.parquet"))
    assert len(tables) == 30
    return tables


def signed_texts(shared: Path, shard_id: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values and kinds of the documents that the table has."""
    path = shared / "conformance/rpv2/documents" / shard_id
    texts = [json.loads(line)["raw_content"] for line in gzip.decompress(path.read_bytes()).splitlines()]
    return sign_redpajama(pa.array([texts[row] for row in rows], pa.large_string()))


def test_every_byte_of_the_published_tables(shared: Path, tmp_path: Path) -> None:
    kinds = Counter()
    for path in published(shared):
        golden = pq.ParquetFile(path)
        shard_id = golden.read(["shard_id"]).column(0)[0].as_py()
        (block,) = read_minhash(str(path))
        values, signed = signed_texts(shared, shard_id, block.rows)
        with MinHashTable(str(tmp_path), path.name) as table:
            table.add(shard_id, block.rows, values, signed == SIGNED)
        ours = pq.ParquetFile(tmp_path / path.name)
        assert ours.read().equals(golden.read(), check_metadata=False)
        assert str(ours.schema).split("\n")[1:] == str(golden.schema).split("\n")[1:]
        assert ours.metadata.num_row_groups == golden.metadata.num_row_groups
        for number in range(ours.metadata.num_columns):
            own, other = (file.metadata.row_group(0).column(number) for file in (ours, golden))
            assert (own.compression, own.encodings) == (other.compression, other.encodings)
        kinds.update(signed.tolist())
    assert kinds[SIGNED] + kinds[SHORT] + kinds[EMPTY] == 488
    assert kinds[SIGNED] == 442


def test_each_column_is_a_prefix_of_the_signature(shared: Path) -> None:
    for path in published(shared):
        (whole,) = read_minhash(str(path))
        for name in BANDS:
            (part,) = read_minhash(str(path), name)
            np.testing.assert_array_equal(part.values, whole.values[:, : part.values.shape[1]])
            np.testing.assert_array_equal(part.valid, whole.valid)


def test_permutations_are_the_published_ones(shared: Path) -> None:
    stored = np.load(shared / "conformance/rpv2/artifacts/minhash_permutations_seed42_128.npy")
    np.testing.assert_array_equal(np.stack(mersenne_draws(42, 128)), stored)
