"""ragged: from a dataset, straight from a selection, special tokens, names, reading back."""

import json

import numpy as np
import pytest

import dolma_dask as dk
from dolma_dask.errors import UsageError
from dolma_dask.testing.tokenizer import END_OF_TEXT

from .conftest import TEXTS, document, write_lines


def test_tokens_of_every_document_in_order(dataset, tmp_path, tokenizer):
    from tokenizers import Tokenizer

    summary = dk.ragged(
        str(dataset), str(tmp_path / "out"), tokenizer=tokenizer, eos=END_OF_TEXT, progress=False
    )
    arrays = dk.open_ragged(str(tmp_path / "out"))
    encode = Tokenizer.from_file(tokenizer).encode
    assert len(arrays) == 10
    for number in range(10):
        expected = [*encode(TEXTS[number % 6], add_special_tokens=False).ids, 0]
        assert np.array_equal(arrays[number], expected)
    assert summary.counts["tokens"] == arrays.tokens
    assert sorted(path.name for path in (tmp_path / "out").glob("*.npy")) == [
        "v0.00000-of-00002.data.npy",
        "v0.00000-of-00002.len.npy",
        "v0.00001-of-00002.data.npy",
        "v0.00001-of-00002.len.npy",
    ]


def test_straight_from_a_selection_equals_by_way_of_a_mix(tagged, tmp_path, tokenizer):
    where = "char_length_v1__char_length_v1__length >= 10"
    v1 = dk.mix(str(tagged), to=str(tmp_path / "v1"), where=where, progress=False)
    dk.ragged(v1, str(tmp_path / "a"), tokenizer=tokenizer, name="n", progress=False)
    dk.ragged(str(tagged), str(tmp_path / "b"), tokenizer=tokenizer, where=where, name="n", progress=False)
    for path in sorted((tmp_path / "a").glob("*.npy")):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_grown_dataset_does_not_leave_old_token_shards(dataset, tmp_path, tokenizer):
    out = str(tmp_path / "out")
    dk.ragged(str(dataset), out, tokenizer=tokenizer, progress=False)
    write_lines(dataset / "documents/c.jsonl.gz", [document(20)])
    with pytest.raises(UsageError, match="does not make"):
        dk.ragged(str(dataset), out, tokenizer=tokenizer, progress=False)
    dk.ragged(str(dataset), out, tokenizer=tokenizer, overwrite=True, progress=False)
    assert len(dk.open_ragged(out)) == 11


def test_token_shards_of_another_dataset_beside_are_told(dataset, tmp_path, tokenizer):
    to = str(tmp_path / "tokens")
    options = {"tokenizer": tokenizer, "progress": False}
    assert not any("other datasets" in note for note in dk.ragged(dataset, to, **options).notes)
    assert not any("other datasets" in note for note in dk.ragged(dataset, to, **options).notes)
    summary = dk.ragged(dataset, to, name="b", **options)
    assert any("of other datasets too, first" in note for note in summary.notes)


def test_errors(dataset, tmp_path, tokenizer):
    with pytest.raises(UsageError, match="endoftext"):
        dk.ragged(str(dataset), str(tmp_path / "o"), tokenizer=tokenizer, eos="<endoftext>")
    with pytest.raises(UsageError, match=r"nothing\.json"):
        dk.ragged(str(dataset), str(tmp_path / "o"), tokenizer=str(tmp_path / "nothing.json"))
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"a": 1}))
    with pytest.raises(UsageError, match=r"bad\.json"):
        dk.ragged(str(dataset), str(tmp_path / "o"), tokenizer=str(bad))
