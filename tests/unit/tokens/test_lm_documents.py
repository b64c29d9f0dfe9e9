"""Documents to ids: cleaning, cutting, what stands around a document."""

import json
import re

import ftfy
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from dolma_dask.errors import UsageError
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.cleaning import Cleaning, detokenize, fix_texts
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.lm_documents import Cutting, LmRecipe, cut_texts
from dolma_dask.tokens.specials import Specials, added_by, find_specials, load_gpt2, surround

ODD = [
    "&amp;", "&lt;b&gt;", "<", "&", "&#x41;", "\r\n", "\r", "\n", "\x0b", "\x0c", "\x1b[0m", "\x7f", "\x85", "\u2028", "\ufeff", "â€œ", "Ã©", "é",
    "e\u0301", "ﬁ", "’", "“", "１２", "\u200b", "\U0001f600", "Â\xa0", " ", "word", "\x00", "\ufffd", "schÃ¶n", "\u0130", "\u00ad",
]  # fmt: skip
TEXTS = st.lists(
    st.one_of(st.lists(st.sampled_from(ODD), max_size=20).map("".join), st.text(max_size=30)), max_size=6
)


def column(texts: list[str]) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(TEXTS, st.sampled_from(["NFC", "NFKC", None]))
def test_repair_line_by_line_is_that_of_whole_texts(texts, normalizer):
    expected = [ftfy.fix_text(text, normalization=normalizer) for text in texts]
    padded = column(["before", *texts, "behind"]).slice(1, len(texts))
    assert fix_texts(padded, normalizer).to_pylist() == expected


def test_texts_that_ftfy_repairs_otherwise_from_6_3_on():
    """ModelZoo 2.2 asks for 6.1.1, which leaves them alone as 6.2 does."""
    assert fix_texts(column(["\u00c2\u0153", "\u00c3\u0153"]), "NFC").to_pylist() == [
        "\u00c2\u0153",
        "\u00c3\u0153",
    ]


@pytest.mark.slow
def test_very_long_lines_are_repaired_as_ftfy_cuts_them():
    text = "x" * 999_999 + "Ã©" + "y < z &lt; " + "\n&lt;"
    assert fix_texts(column([text, "&lt;"]), "NFC").to_pylist() == [ftfy.fix_text(text), "<"]


def test_plain_texts_are_not_copied():
    texts = column(["plain text\nwith <tags>\tand tabs", "", "more"])
    assert fix_texts(texts, "NFC") is texts
    assert Cleaning().apply(texts) is texts


def test_unknown_normalization():
    with pytest.raises(UsageError, match="NFC"):
        Cleaning(True, "NFX")


def by_regular_expressions(text: str) -> str:
    """The same with the patterns of the published readers of wikitext."""
    for old, new in [("s '", "s'"), (" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", ".")]:
        text = text.replace(old, new)
    for mark in ":;.!?,":
        text = text.replace(f" {mark} ", f"{mark} ")
    for opening, closing in ["()", "[]", "{}", '""', "''"]:
        inside = f"{re.escape(opening)}\\s*([^{re.escape(closing)}]*?)\\s*{re.escape(closing)}"
        text = re.sub(inside, lambda found, a=opening, b=closing: a + found[1] + b, text)
    text = text.replace("= = = =", "====").replace("= = =", "===").replace("= =", "==")
    for old, new in [(" ° ", "°"), (" \n", "\n"), ("\n ", "\n"), (" N ", " 1 "), (" 's", "'s")]:
        text = text.replace(old, new)
    return text


PIECES = [" ", "\n", "(", ")", "[", "]", "{", "}", '"', "'", "s", "N", "=", "°", "@-@", "@,@", "@.@", ".", ",", ":", "a", "\u3000"]  # fmt: skip


@pytest.mark.slow
@settings(max_examples=examples(120))
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_wikitext_as_by_regular_expressions(text):
    assert detokenize(text) == by_regular_expressions(text)


def test_wikitext():
    found = detokenize(
        ' = = Title = = \n In 1 @,@ 000 ( about ) days , 20 ° C , was " so " : well @-@ known .'
    )
    assert found == ' == Title ==\nIn 1,000 (about) days, 20°C, was "so": well-known .'


def plain_pieces(text: str, chars: int) -> list[str]:
    pieces, start = [], 0
    while (stop := text.find(" ", start + chars)) >= 0:
        pieces.append(text[start:stop])
        start = stop
    return [*pieces, text[start:]]


@pytest.mark.slow
@given(st.lists(st.text(alphabet="ab é日\U0001f600\n", max_size=40), max_size=5), st.integers(1, 12))
def test_texts_are_cut_at_spaces(texts, chars):
    pieces, counts = cut_texts(column(["x y", *texts]).slice(1), chars)
    expected = [plain_pieces(text, chars) for text in texts]
    assert pieces.to_pylist() == [piece for cut in expected for piece in cut]
    assert counts.tolist() == list(map(len, expected))


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=6),
    st.lists(st.integers(0, 99), max_size=2),
    st.lists(st.integers(0, 99), max_size=2),
)
def test_ids_around_documents(documents, head, tail):
    ids = np.array([token for document in documents for token in document], np.uint16)
    tokens = Tokens(ids, np.array(list(map(len, documents)), np.int32))
    found = surround(tokens, tuple(head), tuple(tail))
    expected = [[*head, *document, *tail] for document in documents]
    assert found.ids.tolist() == [token for document in expected for token in document]
    assert found.lengths.tolist() == list(map(len, expected))
    assert (found.ids.dtype, found.lengths.dtype) == (np.uint16, np.int32)
    assert (found is tokens) == (not documents or not (head or tail))


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """A tokenizer of words that puts a beginning before each text."""
    names = {name: number for number, name in enumerate(["[UNK]", "<s>", "</s>", "one", "two", "three"])}
    tokenizer = Tokenizer(models.WordLevel(names, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    path = tmp_path_factory.mktemp("words") / "tokenizer.json"
    tokenizer.save(str(path))
    return load_tokenizer(path)


def ids_of(recipe: LmRecipe, *texts: str) -> list[list[int]]:
    tokens, _ = recipe.encode(column(list(texts)))
    return [part.tolist() for part in np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1])]


def test_what_the_tokenizer_adds_stays(words):
    assert added_by(words) == ((1,), ())
    specials = find_specials(words)
    assert specials == Specials(2, 2, (1,), ())
    recipe = LmRecipe(words, specials)
    assert ids_of(recipe, "one two", "") == [[1, 3, 4, 2], [1, 2]]
    assert ids_of(LmRecipe(words, specials, skips_empty=True), "one", "") == [[1, 3, 2]]


def test_beginnings_of_pieces(words):
    specials = find_specials(words)
    text = "one two three"
    cut = LmRecipe(words, specials, cutting=Cutting(3))
    assert ids_of(cut, text) == [[1, 3, 1, 4, 1, 5, 2]]
    assert ids_of(LmRecipe(words, specials, cutting=Cutting(3, drops_heads=True)), text) == [[1, 3, 4, 5, 2]]
    assert ids_of(LmRecipe(words, specials, cutting=Cutting(3, drops_first=True)), text) == [[1, 3, 4, 5, 2]]
    without = Specials(2, 2)
    lossy = LmRecipe(words, without, cutting=Cutting(3, drops_first=True))
    assert ids_of(lossy, text) == [[3, 2]], "as the original: a token of every further piece is lost"


def test_an_end_that_the_tokenizer_adds_is_not_doubled(words):
    recipe = LmRecipe(words, Specials(2, 2, (1,), (2,)))
    assert ids_of(recipe, "one") == [[1, 3, 2]]


def test_counts_of_texts(words):
    recipe = LmRecipe(words, Specials(2, 2), Cleaning(True))
    _, counts = recipe.encode(column(["Ã©", "one"]))
    assert (counts.documents, counts.raw_chars, counts.raw_bytes) == (2, 5, 7)
    assert (counts.normalized_chars, counts.normalized_bytes) == (4, 5)


def test_requested_specials(words):
    assert find_specials(words, eos="three", pad="one").eos_id == 5
    assert find_specials(words, eos_id=4) == Specials(4, 4, (1,), ())
    assert find_specials(words, eos="none") == Specials(None, 0, (1,), ())
    assert find_specials(words, eos_id=4, pad_id=3, pads_with_eos=True).pad_id == 3
    for requested, message in [
        ({"eos": "<eos>"}, "eos='<eos>' is not in the vocabulary"),
        ({"pad": "<pad>"}, "pad="),
        ({"eos_id": 99}, "eos=99"),
        ({"eos": "x", "eos_id": 1}, "one of them"),
    ]:
        with pytest.raises(UsageError, match=re.escape(message)):
            find_specials(words, **requested)


def test_a_config_beside_the_tokenizer_counts(words, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(words.read())
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"eos_token": {"content": "two"}, "pad_token": "three"}))
    assert find_specials(load_tokenizer(path)) == Specials(4, 5, (1,), ())
    assert find_specials(load_tokenizer(path), eos_id=3, pads_with_eos=True).pad_id == 3
    config.write_text('{"eos_token": "four"}')
    with pytest.raises(UsageError, match="belong together"):
        find_specials(load_tokenizer(path))
    config.write_text("[")
    with pytest.raises(UsageError, match="not JSON"):
        find_specials(load_tokenizer(path))


def test_a_tokenizer_without_an_end_says_so():
    engine = load_tokenizer(Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).to_str())
    with pytest.raises(UsageError, match="which token ends a document"):
        find_specials(engine)


def test_gpt2_from_its_two_files(tmp_path):
    whole = train_tokenizer(["naïve café 日本語"] * 3, tmp_path / "tokenizer.json", 280)
    model = json.loads(whole.to_str())["model"]
    (tmp_path / "encoder.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"])
    (tmp_path / "vocab.bpe").write_text(f"#version: 0.2\n{merges}\n")
    engine = load_gpt2(str(tmp_path / "vocab.bpe"), str(tmp_path / "encoder.json"))
    text = "naïve café\n 日本語 <|endoftext|>"
    expected = Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("naïve café\n 日本語").ids
    assert engine.encode(column([text])).ids[: len(expected)].tolist() == expected
    assert 0 not in engine.encode(column([text])).ids, "the end of a document is no text"
    for files in (("nothing", str(tmp_path / "encoder.json")), (str(tmp_path / "encoder.json"),) * 2):
        with pytest.raises(UsageError, match=r"merges|vocab\.bpe"):
            load_gpt2(*files)
