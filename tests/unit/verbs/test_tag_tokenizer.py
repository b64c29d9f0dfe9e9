"""tag with a tokenizer of the user's: what is counted, what is made again, what is refused."""

import json

import numpy as np
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens import engine as engines
from dolma_dask.tokens import fast
from dolma_dask.tokens.fast import FastTokenizer

from .conftest import TEXTS, read_lines, write_lines


@pytest.fixture
def root(tmp_path):
    texts = [*TEXTS, "<|endoftext|> of a text", "a zebra crossing"]
    for shard in ("a", "b"):
        rows = [
            json.dumps({"id": f"{shard}{n}", "text": text, "source": "s"}) for n, text in enumerate(texts)
        ]
        write_lines(tmp_path / f"v0/documents/{shard}.jsonl", rows)
    train_tokenizer(TEXTS, tmp_path / "t.json", vocab_size=270)
    return tmp_path


def tag(root, taggers=("tokens",), **options):
    return dk.tag(str(root / "v0"), list(taggers), tokenizer=str(root / "t.json"), progress=False, **options)


def found(root, name, key, shard="a"):
    rows = read_lines(root / f"v0/attributes/{name}/{shard}.jsonl")
    return [json.loads(row)["attributes"].get(f"{name}__{name}__{key}") for row in rows]


@pytest.mark.parametrize("scheduler", ["synchronous", pytest.param("processes", marks=pytest.mark.slow)])
def test_counts_are_those_of_what_ragged_writes(root, scheduler):
    dk.ragged(str(root / "v0"), str(root / "ids"), tokenizer=str(root / "t.json"), progress=False)
    tag(root, ["tokens", "tokenizers_AI2_OLMo_v1"], scheduler=scheduler)
    lengths = np.load(min((root / "ids").glob("*.len.npy"))).tolist()
    assert [spans[0][2] for spans in found(root, "tokens", "count")] == lengths
    as_control = [spans[0][2] for spans in found(root, "tokenizers_AI2_OLMo_v1", "tokens")]
    assert as_control[:-2] + as_control[-1:] == lengths[:-2] + lengths[-1:]
    assert as_control[-2] < lengths[-2]


def test_another_tokenizer_counts_again(root):
    assert (tag(root).done, tag(root).done) == (2, 0)
    train_tokenizer(["zebra crossing"] * 9, root / "t.json", vocab_size=290)
    assert tag(root).done == 2


def test_repetitions_are_where_the_text_has_them(root):
    tag(root, ["tokenizer_repetitions_v2r2"])
    spans = found(root, "tokenizer_repetitions_v2r2", "repetition")
    assert spans == [*[None] * 5, [[1, 119, 59.0]], None, None]


def test_a_long_text_is_looked_at_in_parts_and_placed_in_the_whole(root):
    text = "x" * 99_990 + " one two one two one two one two" + "\u00e9" * 40
    write_lines(root / "v0/documents/a.jsonl", [json.dumps({"id": "1", "text": text, "source": "s"})])
    tag(root, ["tokenizer_repetitions_v2r2"])
    (spans,) = found(root, "tokenizer_repetitions_v2r2", "repetition")
    assert [span[:2] for span in spans][-1][1] == len(text)
    assert all(0 <= start < end <= len(text) for start, end, _ in spans)
    assert any(start >= 100_000 for start, _, _ in spans)


def test_a_tokenizer_is_asked_for_where_it_is_used_and_nowhere_else(root):
    with pytest.raises(
        UsageError,
        match=r"tagger tokens counts tokens of a tokenizer, and none was given; expected --tokenizer",
    ):
        dk.tag(str(root / "v0"), ["char_length_v1", "tokens"], progress=False)
    with pytest.raises(UsageError, match=r"none of the taggers char_length_v1 uses one. Leave tokenizer out"):
        tag(root, ["char_length_v1"])
    (root / "t.json").write_text("{}")
    with pytest.raises(UsageError, match="cannot be read"):
        tag(root)


def test_a_text_that_cannot_be_encoded_is_named_by_its_row(root):
    words = {"type": "WordLevel", "vocab": {"one": 0, "two": 1, "three": 2}, "unk_token": "<none>"}
    space = {"type": "WhitespaceSplit"}
    (root / "t.json").write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": space, "model": words})
    )
    for name in ("tokens", "paragraph_tokenizer_repetitions_v1"):
        with pytest.raises(StageError, match=r"text of row 1\b.*cannot be encoded"):
            tag(root, [name])


@pytest.mark.slow
def test_counts_of_an_engine_that_goes_wrong_are_made_anew(root, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    for name, value in (("_PROBES", 300), ("_EVERY", 512), ("LEAST_VOCABULARY", 0), ("CHECKED", 1)):
        monkeypatch.setattr(fast, name, value)
    right = FastTokenizer.ids

    def ids(self, texts):
        made, offsets = right(self, texts)
        made = made + np.uint32(any("zebra" in text for text in texts))
        return made, offsets

    monkeypatch.setattr(FastTokenizer, "ids", ids)
    engines._proof.cache_clear()
    summary = tag(root, scheduler="synchronous")
    assert summary.exit_status == 0
    assert any("gives other ids for the text" in note for note in summary.notes)
    assert tag(root).done == 0
    engines._proof.cache_clear()
