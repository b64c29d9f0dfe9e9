"""Special tokens that texts spell out are text, for every kind of model, and nothing else changes."""

import dataclasses
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from dolma_dask.errors import DataError
from dolma_dask.formats.findings import SPELLED
from dolma_dask.tokens.engine import TokenEngine, encoding_once, load_tokenizer
from dolma_dask.tokens.lm_documents import Cutting, LmRecipe
from dolma_dask.tokens.specials import Specials
from dolma_dask.tokens.spelled import as_text

SPELLING = "a </s> b<think>c   d"


def byte_level() -> Tokenizer:
    names = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "</", "</s", "</s>"]
    merges = [("<", "/"), ("</", "s"), ("</s", ">")]  # a special token that merges make too
    tokenizer = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("   ")])
    return tokenizer


def pieces() -> Tokenizer:
    letters = [(letter, -5.0) for letter in "abcdefghijklmnopqrstuvwxyz</>▁"]
    tokenizer = Tokenizer(models.Unigram([("</s>", 0.0), ("<unk>", 0.0), *letters], 1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["</s>", "<unk>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("   ")])
    return tokenizer


def words() -> Tokenizer:
    vocabulary = {name: number for number, name in enumerate(["<unk>", "</s>", "a", "b", "c", "d"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["</s>", "<unk>"])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("   "), "a"])
    return tokenizer


def engines(tokenizer: Tokenizer) -> tuple[TokenEngine, TokenEngine]:
    engine = load_tokenizer(tokenizer.to_str())
    return engine, dataclasses.replace(engine, in_text="text")


def strings(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@pytest.mark.parametrize("kind", [byte_level, pieces, words])
def test_spelled_tokens_are_text_and_other_documents_as_ever(kind) -> None:
    tokenizer = kind()
    control = [tokenizer.token_to_id(name) for name in ("</s>", "<think>")]
    encoding, plain = engines(tokenizer)
    texts = strings("a b   c", SPELLING, "", "a é c")
    before, now = encoding.encode(texts), plain.encode(texts)
    assert not before.findings
    assert [(one.row, one.kind, one.what) for one in now.findings] == [(1, SPELLED, "</s> <think>")]
    assert np.isin(control, before.ids).all()
    assert not np.isin(control, now.ids).any()
    others = strings(texts[0].as_py(), "", "a é c")
    assert np.array_equal(encoding.encode(others).ids, plain.encode(others).ids)
    assert tokenizer.token_to_id("   ") in now.ids  # white space is vocabulary, in any document
    alone = Tokenizer.from_str(as_text(tokenizer.to_str()))
    ids = [alone.encode(text, add_special_tokens=False).ids for text in texts.to_pylist()]
    assert now.ids.tolist() == list(chain.from_iterable(ids))
    assert now.lengths.tolist() == list(map(len, ids))


def test_the_unknown_token_means_both() -> None:
    for tokenizer in (pieces(), words()):
        _, plain = engines(tokenizer)
        found = plain.encode(strings("a é", "x <unk> y", "é <unk>"))
        assert [(one.row, one.what) for one in found.findings] == [(1, "<unk>"), (2, "<unk>")] or (
            not found.findings  # a word that is unknown, spelled or not: the ids say the same
        )
    assert not plain.encode(strings("a é")).findings


def test_other_spellings_of_a_normalized_token_count() -> None:
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_special_tokens([AddedToken("[END]", normalized=True)])
    _, plain = engines(tokenizer)
    found = plain.encode(strings("x [eNd] y"))
    assert [one.what for one in found.findings] == ["[end]"]
    assert found.ids.size == len("x [end] y")


def test_two_outputs_of_one_reading_have_what_each_asks_for() -> None:
    encoding, plain = engines(byte_level())
    texts = strings(SPELLING)
    with encoding_once():
        first, second = encoding.encode(texts), plain.encode(texts)
        assert first.ids.tolist() != second.ids.tolist()
        assert dataclasses.replace(plain, in_text="refuse").encode(texts) is second


def test_documents_are_found_through_what_a_recipe_does() -> None:
    _, plain = engines(byte_level())
    recipe = LmRecipe(plain, Specials(0, 0), cutting=Cutting(2), skips_empty=True)
    tokens, counts = recipe.encode(
        pa.record_batch({"text": strings("", "a b", SPELLING + " </s>")}).column(0)
    )
    assert [one.row for one in tokens.findings] == [2]
    assert counts.spelled == 1


def test_names_that_stand_in_place_of_others_are_no_way_round() -> None:
    _, plain = engines(pieces())
    hidden = as_text(pieces().to_str())
    name = Tokenizer.from_str(hidden).id_to_token(0)
    assert not plain.encode(strings(name)).findings  # unknown characters, without a special token beside them
    with pytest.raises(DataError, match="row 1 of the batch makes the special token"):
        plain.encode(strings("a", f"</s> {name}"))
