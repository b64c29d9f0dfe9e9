"""The engine gives the ids of `tokenizers`, whatever the file configures, and says clearly what is wrong."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from dolma_dask.errors import DataError, SchemaError, SourceChangedError, UsageError
from dolma_dask.tokens import encoding
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.engine import build, encoding_once, load_tokenizer

WORDS = "the quick brown fox jumps over the lazy dog and naïve cafés, twice; Привет мир 世界 🙂 " * 3


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=350,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS], trainer)
    return tokenizer


def word_level(vocabulary: dict[str, int], unknown: str | None = None) -> Tokenizer:
    model = models.WordLevel(vocabulary, unk_token=unknown) if unknown else models.WordLevel(vocabulary)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return byte_level()


def strings(*texts: str | None) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


def split(tokens: Tokens) -> list[list[int]]:
    stops = np.cumsum(tokens.lengths, dtype=np.int64)
    return [
        tokens.ids[stop - length : stop].tolist() for stop, length in zip(stops, tokens.lengths, strict=True)
    ]


def oracle(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.text(max_size=60) | st.sampled_from(["", "a\0b", "<|endoftext|>", WORDS]), max_size=12)
)
def test_ids_are_those_of_tokenizers_encode(tokenizer: Tokenizer, texts: list[str]) -> None:
    tokens = load_tokenizer(tokenizer.to_str()).encode(strings(*texts))
    assert split(tokens) == oracle(tokenizer, texts)
    assert tokens.lengths.dtype == np.int32
    assert tokens.ids.dtype == np.dtype("<i2")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30))
@given(
    texts=st.lists(st.text(max_size=40), max_size=12),
    limit=st.integers(1, 2000),
    cut=st.tuples(st.integers(0, 12), st.integers(0, 12)),
)
def test_pieces_and_slices_change_nothing(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, texts: list[str], limit: int, cut: tuple[int, int]
) -> None:
    monkeypatch.setattr(encoding, "PIECE_BYTES", limit)
    sliced = strings(*texts).slice(min(cut[0], len(texts)), cut[1])
    tokens = load_tokenizer(tokenizer.to_str()).encode(sliced)
    assert split(tokens) == oracle(tokenizer, sliced.to_pylist())


@pytest.mark.parametrize("texts", [[], [""], ["a b", "", "b"]])
def test_the_same_array_is_encoded_once(tokenizer: Tokenizer, texts: list[str]) -> None:
    engine = load_tokenizer(tokenizer.to_str())
    array = pa.array(["x", *texts], pa.large_string()).slice(1)
    with encoding_once():
        first = engine.encode(array)
        assert engine.encode(array.slice(0)) is first
        assert engine.encode(pa.array(texts, pa.large_string())) is not first
        assert len(engine.encode(pa.array(["x", *texts], pa.large_string())).lengths) == len(texts) + 1
    again = engine.encode(array)
    assert again is not first
    assert np.array_equal(again.ids, first.ids)


def test_pieces_are_bounded_by_bytes_and_by_documents() -> None:
    sizes = [0] * 20_000 + [100_000] * 6 + [3_000_000]
    texts = strings(*("x" * size for size in sizes))
    pieces = list(encoding.pieces_of(texts))
    assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces[:-1])]
    assert pieces[-1] == (len(sizes) - 1, len(sizes))
    for start, stop in pieces[:-1]:
        assert sum(sizes[start:stop]) + 256 * (stop - start) <= encoding.PIECE_BYTES


def test_truncation_and_padding_of_the_file_are_switched_off() -> None:
    configured = byte_level()
    configured.enable_truncation(4)
    configured.enable_padding(length=50)
    tokens = load_tokenizer(configured.to_str()).encode(strings(WORDS, "a", ""))
    assert split(tokens) == oracle(byte_level(), [WORDS, "a", ""])


def test_vocab_size_counts_added_tokens_and_gaps() -> None:
    gapped = word_level({"a": 0, "b": 40_000, "[UNK]": 1}, "[UNK]")
    assert load_tokenizer(gapped.to_str()).max_id == 40_000
    assert load_tokenizer(gapped.to_str()).dtype == np.dtype("<u2")
    plain = word_level({"a": 0, "b": 1})
    plain.add_special_tokens(["</s>"])
    engine = load_tokenizer(plain.to_str())
    assert engine.vocab_size == engine.max_id + 1 == 3


def test_fingerprint_is_the_digest_of_the_bytes(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = tokenizer.to_str()
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    by_path, by_folder, by_text = map(load_tokenizer, (tmp_path / "tokenizer.json", str(tmp_path), text))
    assert by_path.fingerprint == xxhash.xxh3_128_hexdigest(text.encode())
    assert by_path == by_folder == by_text
    assert (by_path.file_name, by_text.file_name) == ("tokenizer.json", None)
    assert load_tokenizer(text + "\n").fingerprint != by_text.fingerprint


def test_a_path_pickles_small_and_is_built_once_per_process(tmp_path: Path, tokenizer: Tokenizer) -> None:
    (tmp_path / "t.json").write_text(tokenizer.to_str(), encoding="utf-8")
    engine = load_tokenizer(tmp_path / "t.json")
    pickled = pickle.dumps(engine)
    assert len(pickled) < 1000
    copy = pickle.loads(pickled)
    assert build(copy) is build(engine)
    assert copy.encode(strings("the fox")).ids.tolist() == oracle(tokenizer, ["the fox"])[0]


def test_another_process_reads_the_file_and_notices_a_change(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "t.json"
    path.write_text(tokenizer.to_str(), encoding="utf-8")
    engine = load_tokenizer(path)
    path.write_text(tokenizer.to_str() + " ", encoding="utf-8")
    build.cache_clear()
    with pytest.raises(SourceChangedError, match="changed since it was opened"):
        engine.encode(strings("a"))


def test_text_travels_with_the_pickle(tokenizer: Tokenizer) -> None:
    pickled = pickle.dumps(load_tokenizer(tokenizer.to_str()))
    build.cache_clear()
    assert pickle.loads(pickled).encode(strings("fox")).ids.tolist() == oracle(tokenizer, ["fox"])[0]


def test_errors_name_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no\.json does not exist; expected the JSON of the tokenizers library"
    ):
        load_tokenizer(tmp_path / "no.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\x00\x12")
    with pytest.raises(UsageError, match=r"binary\.json cannot be read.*expected the JSON"):
        load_tokenizer(tmp_path / "binary.json")
    (tmp_path / "config.json").write_text(json.dumps({"tokenizer_class": "T5"}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"config\.json cannot be read: .*'model', 'pre_tokenizer'"):
        load_tokenizer(tmp_path / "config.json")
    with pytest.raises(UsageError, match="given as JSON text cannot be read"):
        load_tokenizer('{"a": ')
    with pytest.raises(UsageError, match="empty vocabulary"):
        load_tokenizer(Tokenizer(models.BPE()).to_str())
    with pytest.raises(UsageError, match="not a local file"):
        load_tokenizer("s3://bucket/tokenizer.json")


def test_a_tokenizer_that_draws_at_random_is_refused() -> None:
    content = json.loads(byte_level().to_str())
    content["model"]["dropout"] = 0.1
    with pytest.raises(UsageError, match=r"sets dropout .* drawn at random"):
        load_tokenizer(json.dumps(content))


def test_bad_texts_are_located(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = load_tokenizer(tokenizer.to_str())
    with pytest.raises(DataError, match="row 1 of the batch is null"):
        engine.encode(strings("a", None, "b"))
    with pytest.raises(SchemaError, match="int64"):
        engine.encode(pa.array([1, 2]))
    invalid = pa.Array.from_buffers(
        pa.large_string(), 3, [None, pa.py_buffer(np.array([0, 1, 2, 3], np.int64)), pa.py_buffer(b"a\xffb")]
    )
    with pytest.raises(DataError, match=r"row 1 of the batch, .*, cannot be encoded"):
        engine.encode(invalid)
    monkeypatch.setattr(encoding, "PIECE_BYTES", 1)
    with pytest.raises(DataError, match=r"row 2 of the batch, '.+', cannot be encoded: .*UNK") as caught:
        load_tokenizer(word_level({"a": 0}).to_str()).encode(strings("a", "a a", "a z"))
    assert caught.value.details == {"row": 2}


def test_int32_offsets_are_accepted(tokenizer: Tokenizer) -> None:
    engine = load_tokenizer(tokenizer.to_str())
    assert split(engine.encode(pa.array(["fox", "", "dog"]))) == oracle(tokenizer, ["fox", "", "dog"])


def test_near_tokens_offer_added_tokens_first(tokenizer: Tokenizer) -> None:
    engine = load_tokenizer(tokenizer.to_str())
    assert engine.near_tokens("<|endoftxt|>")[0] == "<|endoftext|>"
    assert engine.near_tokens("completely unlike anything") == ["<|endoftext|>"]
    tokenizer.add_tokens(["    ", "\t\t"])
    engine = load_tokenizer(tokenizer.to_str())
    assert engine.near_tokens("completely unlike anything") == ["<|endoftext|>"], "white space ends nothing"


def test_tokens_must_add_up() -> None:
    with pytest.raises(DataError, match="sum to 3, but there are 2 ids"):
        Tokens(np.zeros(2, np.int16), np.array([1, 2], np.int32))


@pytest.mark.parametrize(("given_value", "expected"), [(None, "false"), ("true", "true")])
def test_one_thread_unless_the_user_says_otherwise(given_value: str | None, expected: str) -> None:
    env = {key: value for key, value in os.environ.items() if key != "TOKENIZERS_PARALLELISM"}
    if given_value is not None:
        env["TOKENIZERS_PARALLELISM"] = given_value
    code = "import os, dolma_dask.tokens.engine; print(os.environ['TOKENIZERS_PARALLELISM'])"
    found = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == expected
