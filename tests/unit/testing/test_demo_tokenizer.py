"""The small tokenizer: lossless, deterministic, trained on a fair sample."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from dolma_dask.testing.tokenizer import END_OF_TEXT, sample_texts, train_tokenizer

STARTS = ("ba", "de", "fi", "go", "hu")
ENDS = ("ra", "le", "mi", "no", "ku", "st", "ng")
WORDS = [start + end for start in STARTS for end in ENDS]


def made_texts(count: int) -> list[str]:
    rng = random.Random(7)
    return [" ".join(rng.choices(WORDS, k=60)) for _ in range(count)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tokenizer]:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    return path, train_tokenizer(made_texts(200), path, vocab_size=400)


def test_the_same_texts_in_any_order_give_the_same_bytes(
    trained: tuple[Path, Tokenizer], tmp_path: Path
) -> None:
    texts = made_texts(200)
    random.Random(1).shuffle(texts)
    train_tokenizer(iter(texts), tmp_path / "again.json", vocab_size=400)
    assert (tmp_path / "again.json").read_bytes() == trained[0].read_bytes()


def test_the_file_holds_the_tokenizer(trained: tuple[Path, Tokenizer]) -> None:
    path, tokenizer = trained
    loaded = Tokenizer.from_file(str(path))
    assert loaded.get_vocab() == tokenizer.get_vocab()
    assert loaded.token_to_id(END_OF_TEXT) == 0
    assert 257 < loaded.get_vocab_size() <= 400
    assert loaded.encode("bara").ids == tokenizer.encode("bara").ids
    assert len(tokenizer.encode("bara dele").ids) < len("bara dele")


@given(text=st.text(max_size=30))
def test_no_text_is_lost(trained: tuple[Path, Tokenizer], text: str) -> None:
    tokenizer = trained[1]
    ids = tokenizer.encode(text).ids
    if END_OF_TEXT not in text:
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


@given(st.lists(st.text(max_size=6), max_size=30), st.integers(0, 60), st.randoms(use_true_random=False))
def test_the_sample_is_a_function_of_the_set_of_texts(
    texts: list[str], max_bytes: int, rng: random.Random
) -> None:
    sample = sample_texts(texts, max_bytes)
    shuffled = texts * 2
    rng.shuffle(shuffled)
    assert sample_texts(shuffled, max_bytes) == sample
    assert len(set(sample)) == len(sample)
    assert set(sample) <= set(texts)
    sizes = [len(text.encode()) for text in sample]
    assert sum(sizes[:-1]) < max_bytes or len(sample) <= 1
    if sum(sizes) < max_bytes:
        assert set(sample) == set(texts)
