"""The reference corpus through every verb, on a LocalCluster started by the command line; and C4's layout to the original token arrays."""

import json
import subprocess
import sys

import pytest
from thorough import THOROUGH

import dolma_dask as dk

pytestmark = [pytest.mark.conformance, pytest.mark.e2e]


def command(*words: str) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "dolma_dask", *words, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_corpus_from_raw_to_tokens(shared, tmp_path):
    v0, v1, out = (str(tmp_path / name) for name in ("v0", "v1", "out"))
    converted = command("convert", str(shared / "corpus/documents"), "--to", v0)
    assert converted["counts"]["documents_out"] == 7421
    command("tag", v0, "--taggers", "char_length_v1", "whitespace_tokenizer_v1", "gopher_v2")
    words = "word_count >= 50" if THOROUGH else "50 <= word_count < 200"
    mixed = command("mix", v0, "--to", v1, "--where", f"{words} and symbol_to_word_ratio < 0.1")
    assert 0 < mixed["counts"]["documents_out"] < 7421
    tokens = command("ragged", v1, out, "--tokenizer", str(shared / "tokenizers/gpt2.json"))
    arrays = dk.open_ragged(out)
    assert len(arrays) == mixed["counts"]["documents_out"]
    assert arrays.tokens == tokens["counts"]["tokens"]
    again = command("tag", v0, "--taggers", "char_length_v1", "whitespace_tokenizer_v1", "gopher_v2")
    assert (again["done"], again["skipped"]) == (0, 2)


@pytest.mark.parametrize(
    ("folder", "expected"), [("in", "out/train"), ("in", "out/validation"), ("edge/in", "edge/train")]
)
def test_c4_to_the_arrays_of_the_original_tool(shared, tmp_path, folder, expected):
    reference = shared / "conformance/ragged"
    dk.convert(
        str(reference / folder),
        to=str(tmp_path / "v0"),
        mapping="c4",
        scheduler="synchronous",
        progress=False,
    )
    dk.ragged(
        str(tmp_path / "v0"),
        str(tmp_path / "out"),
        tokenizer=str(reference / "tokenizer/tokenizer.json"),
        special_tokens_in_text="encode",
        scheduler="synchronous",
        progress=False,
    )
    found = sorted((reference / expected).glob("*.npy"))
    assert found
    for path in found:
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name
