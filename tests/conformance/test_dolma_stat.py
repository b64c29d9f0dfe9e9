"""The report of the Dolma toolkit's ``stat``."""

import gzip
import json

import pytest

import dolma_dask as dk

pytestmark = pytest.mark.conformance


def test_bins_are_those_of_the_toolkit(shared, tmp_path):
    folder, place = shared / "conformance/dolma", {"scheduler": "synchronous", "progress": False}
    dk.stat(folder / "in", attributes=["char_length_v1"], bins=10, report=str(tmp_path / "out"), **place)
    found, expected = (
        [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        for path in (tmp_path / "out/summaries.jsonl.gz", folder / "out/stat_char_length/summaries.jsonl.gz")
    )
    assert found == expected
