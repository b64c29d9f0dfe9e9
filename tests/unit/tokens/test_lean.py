"""A tokenizer with fewer steps gives the ids of the whole one, whichever texts it is asked for."""

import sys
import unicodedata

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.lean import find_lean, is_composed

MARKS = "e\u0301 A\u030a a\u0323\u0307 \u212b \u1100\u1161\u11a8 \u0958 <|endoftext|>\u0338 \u2728 \U0001d15e"
UNASSIGNED_ONCE = "\u0ece\u0897\u0301"
"""Marks of Unicode 15 and 16."""


def made(*, composes: bool, template: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if composes:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator(["the café, naïve Ångström 각각 " * 3], trainer)
    tokenizer.add_tokens([AddedToken("    ", normalized=True), AddedToken("fé")])
    end = ("<|endoftext|>", 0)
    tokenizer.post_processor = (
        processors.TemplateProcessing(single="$A <|endoftext|>", special_tokens=[end])
        if template
        else processors.ByteLevel()
    )
    return tokenizer


TOKENIZERS = [made(composes=True), made(composes=False), made(composes=True, template=True)]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(st.lists(st.text(max_size=30) | st.sampled_from([MARKS, UNASSIGNED_ONCE, "cafe\u0301    café"])))
@example([MARKS, "café", UNASSIGNED_ONCE, ""])
def test_ids_are_those_of_the_whole(tokenizer: Tokenizer, texts: list[str]) -> None:
    engine = load_tokenizer(tokenizer.to_str())
    found = engine.encode(pa.array(texts, pa.large_string()))
    expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    assert found.ids.tolist() == [one for ids in expected for one in ids]
    assert found.lengths.tolist() == list(map(len, expected))


def test_steps_are_left_out() -> None:
    assert [find_lean(one) is not None for one in TOKENIZERS] == [True] * 3
    lean = find_lean(TOKENIZERS[0])
    assert lean is not None
    assert lean.tokenizer.normalizer is None
    assert lean.tokenizer.post_processor is None
    assert find_lean(made(composes=False, template=True)) is None


def test_added_tokens_that_the_normal_form_changes_need_it() -> None:
    tokenizer = made(composes=True)
    tokenizer.add_tokens([AddedToken("\u212b", normalized=True)])
    assert find_lean(tokenizer) is None


def test_what_counts_as_composed_is_so_for_the_library() -> None:
    compose = normalizers.NFC().normalize_str
    chars = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    for before, behind in [("", ""), ("a", ""), ("\u1100", ""), ("", "\u0301"), ("\u0323", "\u0307")]:
        texts = [text for char in chars if is_composed(text := before + char + behind)]
        assert [text for text in texts if compose(text) != text] == []


def test_characters_that_are_looked_at_are_in_every_version_of_unicode() -> None:
    known = unicodedata.ucd_3_2_0
    chars = (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    new = {char for char in chars if is_composed(char) and known.category(char) == "Cn"}
    # pictures, which have neither parts nor an order among marks
    assert {unicodedata.category(char)[0] for char in new} == {"S"}
    assert {unicodedata.combining(char) for char in new} == {0}
