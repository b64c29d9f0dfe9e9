"""Names, shapes and counts of HDF5 token shards."""

import numpy as np
import pytest

from dolma_dask.errors import DataError, UsageError
from dolma_dask.formats.hdf5 import RowCounts, RowShape, TextCounts, data_params, part_name


def test_names_sort_as_rows_do():
    names = [part_name(partition, index) for partition in (0, 9, 10, 999_999) for index in (0, 9, 10, 99_999)]
    assert names == sorted(names)
    assert names[0] == "part-000000-00000.h5"
    for partition, index in ((10**6, 0), (0, 10**5), (-1, 0)):
        with pytest.raises(UsageError, match="max_rows_per_file"):
            part_name(partition, index)


def test_rows_must_fit():
    shape = RowShape(2, 3, 4)
    shape.check(np.zeros((2, 3, 4), np.int32), 0)
    for rows, done in [
        (np.zeros((3, 3, 4), np.int32), 0),
        (np.zeros((1, 3, 4), np.int32), 2),
        (np.zeros((1, 3, 4), np.int64), 0),
        (np.zeros((1, 3, 5), np.int32), 0),
        (np.zeros((3, 4), np.int32), 0),
    ]:
        with pytest.raises(DataError):
            shape.check(rows, done)


def test_counts_add_up():
    assert RowCounts(1, 2, 3, 4, 5, 6, 7) + RowCounts(10, 20, 30, 40, 50, 60, 70) == RowCounts(
        11, 22, 33, 44, 55, 66, 77
    )
    assert TextCounts(1, 2, 3, 4, 5, 6) + TextCounts(1, 1, 1, 1, 1, 1) == TextCounts(2, 3, 4, 5, 6, 7)


def test_data_params():
    texts = TextCounts(
        documents=5, empty=2, raw_chars=11, raw_bytes=12, normalized_chars=9, normalized_bytes=10
    )
    rows = RowCounts(
        rows=2,
        tokens=16,
        pad_tokens=3,
        loss_tokens=13,
        eos_tokens=4,
        detokenized_bytes=70,
        detokenized_chars=60,
    )
    content = data_params(("input_ids",), 0, 1, 300, texts, rows, {"setup": {"mode": "LMData"}})
    assert content["setup"] == {"mode": "LMData"}
    assert content["features"] == ["input_ids"]
    assert content["post-process"] == {
        "average_bytes_per_sequence": 6,
        "average_chars_per_sequence": 6,
        "discarded_files": 2,
        "eos_id": 0,
        "loss_valid_tokens": 13,
        "n_examples": 2,
        "non_pad_tokens": 13,
        "normalized_bytes_count": 10,
        "normalized_chars_count": 9,
        "num_masked_tokens": 3,
        "num_pad_tokens": 3,
        "num_tokens": 16,
        "pad_id": 1,
        "processed_files": 5,
        "raw_bytes_count": 12,
        "raw_chars_count": 11,
        "successful_files": 3,
        "vocab_size": 300,
    }
    assert content["h5_dataset_stats"] == {
        "detokenized_bytes": 70,
        "detokenized_chars": 60,
        "loss_valid_tokens": 13,
        "non_pad_tokens": 9,
        "num_sequences": 2,
        "num_tokens": 16,
    }
    nothing = data_params((), None, 0, 1, texts, RowCounts(), {})
    assert nothing["post-process"]["average_bytes_per_sequence"] == 0
