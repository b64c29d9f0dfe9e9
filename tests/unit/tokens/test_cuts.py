"""Long texts are encoded in parts, with the ids of the whole; where that is not sure they stay whole."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from dolma_dask.tokens import encoding
from dolma_dask.tokens.cuts import Cutter, find_cutter
from dolma_dask.tokens.engine import load_tokenizer

WORDS = (
    "the quick brown fox jumps over it's naïve café, 12345 times; Привет мир 日本語 テキスト e\u0301 ﬁ 🙂\n"
)
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
ISOLATED = pre_tokenizers.Sequence(
    [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
)


def trained(pre_tokenizer: object, normalizer: object = None, kind: str = "bpe") -> Tokenizer:
    tokenizer = Tokenizer(models.BPE() if kind == "bpe" else models.Unigram())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    known = {"vocab_size": 420, "show_progress": False, "special_tokens": ["</s>"]}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = (
        trainers.BpeTrainer(initial_alphabet=alphabet, **known)
        if kind == "bpe"
        else trainers.UnigramTrainer(unk_token="<unk>", **{**known, "special_tokens": ["</s>", "<unk>"]})
    )
    tokenizer.train_from_iterator([WORDS] * 20, trainer)
    if kind == "bpe":  # as GPT-NeoX
        tokenizer.add_tokens([AddedToken("    "), AddedToken("  ")])
    return tokenizer


def words() -> Tokenizer:
    names = ["[UNK]", *sorted(set("thequickbrownfoxjumpsoverlazy")), "##o", "##e", "the", "##x"]
    tokenizer = Tokenizer(models.WordPiece({name: at for at, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer, tokenizer.normalizer = (
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(),
    )
    return tokenizer


RUNS = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
CUTTABLE = {
    "gpt2": lambda: trained(pre_tokenizers.ByteLevel(False)),
    "roberta": lambda: trained(pre_tokenizers.ByteLevel(True)),
    "neox": lambda: trained(pre_tokenizers.ByteLevel(False), normalizers.NFC()),
    "llama3": lambda: trained(ISOLATED),
    "starcoder": lambda: trained(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    ),
    "t5": lambda: trained(pre_tokenizers.Metaspace(), RUNS, "unigram"),
    "xlm": lambda: trained(pre_tokenizers.Metaspace(prepend_scheme="first"), normalizers.NFKC(), "unigram"),
    "bert": words,
}
TEXTS = st.lists(
    st.sampled_from(
        [
            "the",
            " quick",
            "  ",
            "    ",
            "\n",
            " ",
            "a b c",
            "</s>",
            " 日本語 テ",
            "e\u0301 x",
            "12345",
            "'s",
            "ﷺ ",
            "ﬁ b",
        ]
    )
    | st.text(max_size=8),
    max_size=40,
).map("".join)


@pytest.mark.parametrize("name", CUTTABLE)
def test_ids_of_parts_are_those_of_the_whole(name: str) -> None:
    engine = load_tokenizer(CUTTABLE[name]().to_str())
    tokenizer = Tokenizer.from_str(engine.read())
    assert find_cutter(engine.read()) is not None

    @settings(max_examples=examples(25), suppress_health_check=list(HealthCheck), deadline=None)
    @given(texts=st.lists(TEXTS, max_size=3), size=st.integers(1, 40))
    def law(texts: list[str], size: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoding, "PIECE_BYTES", size)
            patch.setattr("dolma_dask.tokens.cuts._SEARCHED", 24)
            tokens = engine.encode(pa.array(["", *texts], pa.large_string()).slice(1))
        whole = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        assert tokens.ids.tolist() == [one for ids in whole for one in ids]
        assert tokens.lengths.tolist() == list(map(len, whole))

    law()


def test_long_texts_are_cut_and_runs_without_spaces_are_not() -> None:
    engine = load_tokenizer(CUTTABLE["neox"]().to_str())
    tokenizer, cutter = Tokenizer.from_str(engine.read()), find_cutter(engine.read())
    assert cutter == Cutter(at_newlines=True)
    text = np.frombuffer((WORDS * 4000).encode(), np.uint8)
    cuts = cutter.cuts(text, 50_000, tokenizer)
    assert np.diff([0, *cuts, text.size]).max() < 51_000
    assert len(cuts) == text.size // 50_000
    assert cutter.cuts(np.frombuffer(b"a" * 300_000, np.uint8), 50_000, tokenizer) == []
    half = (WORDS * 1000).encode() + b"-" * 300_000 + b" a b" * 50_000
    cuts = cutter.cuts(np.frombuffer(half, np.uint8), 50_000, tokenizer)
    assert np.diff([0, *cuts, len(half)]).max() > 300_000  # the run is in one part
    assert len(cuts) > 4


@pytest.mark.parametrize(
    ("pre_tokenizer", "normalizer", "added"),
    [
        (None, None, None),
        (pre_tokenizers.ByteLevel(False, use_regex=False), None, None),
        (pre_tokenizers.Metaspace(split=False), None, None),
        (pre_tokenizers.Split(Regex(r"\p{L}+ \p{L}+|\s+"), "isolated"), None, None),
        (pre_tokenizers.Split(" ", "merged_with_previous"), None, None),
        (pre_tokenizers.ByteLevel(False), normalizers.Strip(), None),
        (pre_tokenizers.ByteLevel(False), normalizers.Prepend("▁"), None),
        (pre_tokenizers.ByteLevel(False), None, AddedToken("New York")),
        (pre_tokenizers.ByteLevel(False), None, AddedToken("<tag>", rstrip=True)),
    ],
)
def test_what_is_not_known_stays_whole(pre_tokenizer: object, normalizer: object, added: object) -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0}, []))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if added is not None:
        tokenizer.add_tokens([added])
    assert find_cutter(tokenizer.to_str()) is None


def test_a_cut_that_does_not_check_cuts_nothing() -> None:
    across = Tokenizer(models.BPE({"x": 0, " ": 1, "y": 2, "x ": 3}, [("x", " ")]))
    text = np.frombuffer(b"x y " * 500, np.uint8)
    assert Cutter(at_newlines=True).cuts(text, 100, across) == []
    assert find_cutter(across.to_str()) is None
