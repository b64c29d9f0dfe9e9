"""The fast engine gives the ids of `tokenizers`, or is not used; what it made before it was found wrong is made anew."""

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

import dolma_dask as dk
from dolma_dask.errors import EngineDiffersError, StageError, UsageError
from dolma_dask.tokens import engine as engines
from dolma_dask.tokens import fast
from dolma_dask.tokens.engine import choose, load_tokenizer
from dolma_dask.tokens.fast import CHECKED, FastTokenizer, fast_version, probes

pytest.importorskip("fastokens")

WORDS = "the quick brown fox jumps over the lazy dog and naïve cafés, twice; Привет мир 世界 🙂 " * 3


@pytest.fixture(scope="module")
def trained() -> str:
    """Return the JSON of a byte-level tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=350,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS], trainer)
    return tokenizer.to_str()


@pytest.fixture(autouse=True)
def own_proofs(tmp_path, monkeypatch):
    """Let a test begin on a machine that has proved nothing, with few probes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fast, "_PROBES", 300)
    monkeypatch.setattr(fast, "_EVERY", 512)
    monkeypatch.setattr(fast, "LEAST_VOCABULARY", 0)
    caches = (engines._proof, engines._built_fast)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


@pytest.fixture
def wrong(monkeypatch):
    """Let the fast engine go wrong for texts with a word in it."""
    right = FastTokenizer.ids

    def ids(self, texts):
        found, offsets = right(self, texts)
        found = found.copy()
        for row, text in enumerate(texts):
            if "zebra" in text:
                found[offsets[row]] += 1
        return found, offsets

    monkeypatch.setattr(FastTokenizer, "ids", ids)


def strings(*texts: str) -> pa.LargeStringArray:
    return pa.array(texts, pa.large_string())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.text(max_size=60) | st.sampled_from(probes(["<|endoftext|>"])), max_size=8))
def test_ids_are_those_of_tokenizers(trained, texts) -> None:
    slow = load_tokenizer(trained)
    quick = choose(slow, "fastokens")
    for in_text in ("encode", "text"):
        expected, found = (replace(one, in_text=in_text).encode(strings(*texts)) for one in (slow, quick))
        assert found.ids.dtype == expected.ids.dtype
        assert np.array_equal(found.ids, expected.ids)
        assert np.array_equal(found.lengths, expected.lengths)
        assert found.findings == expected.findings


def test_probes_are_the_same_everywhere_and_hold_special_tokens(monkeypatch) -> None:
    monkeypatch.undo()
    found = probes(["<|x|>"])
    assert found == probes(["<|x|>"])
    assert len(set(found)) > 7_000
    assert any("<|x|>" in text and text != "<|x|>" for text in found)


def test_a_machine_pays_for_a_proof_once(trained, tmp_path, monkeypatch) -> None:
    tokenizer = load_tokenizer(trained)
    assert choose(tokenizer, "auto").fast == fast_version()
    (kept,) = (tmp_path / "cache/dolma_dask/engines").iterdir()
    assert kept.name == f"{tokenizer.fingerprint}.json"
    monkeypatch.setattr(fast, "_prove", lambda *_: pytest.fail("proved again"))
    engines._proof.cache_clear()
    assert choose(tokenizer, "auto").fast == fast_version()
    for damaged in (b"", b"{", b'{"engine":"fastokens 0.1 beside tokenizers 0.1","version":1}'):
        kept.write_bytes(damaged)
        engines._proof.cache_clear()
        monkeypatch.setattr(
            fast, "_prove", lambda engine, *_: fast.Proof(engine, differs="cannot be used: for a test")
        )
        assert choose(tokenizer, "auto").fast == ""
        assert json.loads(kept.read_bytes())["differs"] == "cannot be used: for a test"


def test_a_folder_that_cannot_be_written_only_costs_time(trained, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert choose(load_tokenizer(trained), "auto").fast


def test_an_engine_that_is_not_equal_is_not_used(trained, monkeypatch) -> None:
    monkeypatch.setattr(
        FastTokenizer, "ids", lambda self, texts: (np.zeros(len(texts), np.uint32), np.arange(len(texts) + 1))
    )
    tokenizer = load_tokenizer(trained)
    assert choose(tokenizer, "auto") == tokenizer
    assert choose(tokenizer, "auto").fast == choose(tokenizer, "auto").distrusts == ""
    with pytest.raises(UsageError, match=r"gives other ids for .*expected engine=auto or tokenizers"):
        choose(tokenizer, "fastokens")


def test_a_kind_that_the_engine_does_not_know() -> None:
    model = models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    known = load_tokenizer(tokenizer.to_str())
    assert choose(known, "auto").encode(strings("a b")).ids.tolist() == [0, 1]


IGNORES_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def test_characters_that_differ_are_left_to_the_definition(trained) -> None:
    """The pattern of GPT-4 and others ignores case: a long s is an s for the one engine, and not for the other."""
    known = Tokenizer.from_str(trained)
    split = pre_tokenizers.Split(Regex(IGNORES_CASE), "isolated")
    known.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    known.add_tokens(["<tag>"])
    slow = load_tokenizer(known.to_str())
    quick = choose(slow, "fastokens")
    assert "\u017f" in quick.avoid
    texts = strings("he's", "he'\u017f\u0926 and", "<tag>", "", "it's he'\u017f", "plain")
    assert quick.encode(texts).ids.tolist() == slow.encode(texts).ids.tolist()
    assert quick.encode(texts).lengths.tolist() == slow.encode(texts).lengths.tolist()


def test_other_words_show_without_a_merge_across_them(trained) -> None:
    pairs = Tokenizer.from_str(fast.of_pairs(trained))
    assert pairs.encode("<|endoftext|>a").ids[0] == pairs.token_to_id("<|endoftext|>") >= 256 + 65_536
    assert len(pairs.encode("abcd").ids) < 4
    assert fast.of_pairs(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str()) is None


def test_threads_that_begin_together_share_one_engine_that_encodes_in_each(trained, monkeypatch) -> None:
    made = []

    def slowly(*arguments: object) -> FastTokenizer:
        made.append(FastTokenizer(*arguments))
        time.sleep(0.05)
        return made[-1]

    monkeypatch.setattr(engines, "FastTokenizer", slowly)
    quick = choose(load_tokenizer(trained), "fastokens")
    made.clear()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: quick.encode(strings(*[WORDS] * 100)).ids.tolist(), range(4)))
    assert found == found[:1] * 4
    assert len(made) == 1
    if sys.platform == "linux":
        names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
        assert not [name for name in names if name.startswith("fastokens")], "the engine's own threads"


def test_what_a_file_configures_is_no_reason_to_refuse_it(trained) -> None:
    """Truncation and padding are switched off; an added token may be spelled as a pair."""
    known = Tokenizer.from_str(trained)
    known.enable_truncation(3)
    known.enable_padding(length=5)
    known.add_tokens(["é!", "ab", "<tag>"])
    slow = load_tokenizer(known.to_str())
    quick = choose(slow, "fastokens")
    texts = strings("the quick brown é! fox ab", "", "<tag>")
    assert quick.fast
    assert quick.encode(texts).ids.tolist() == slow.encode(texts).ids.tolist()


def test_a_sample_that_differs_stands_for_all_of_its_kind(trained, monkeypatch) -> None:
    right = FastTokenizer.ids

    def ids(self, texts):
        found, offsets = right(self, texts)
        found = found.copy()
        for row, text in enumerate(texts):
            if "\u4e00" in text:
                found[offsets[row]] += 1
        return found, offsets

    monkeypatch.setattr(FastTokenizer, "ids", ids)
    assert choose(load_tokenizer(trained), "auto").fast == ""


def test_a_small_vocabulary_is_not_worth_a_proof(trained, monkeypatch) -> None:
    monkeypatch.setattr(fast, "LEAST_VOCABULARY", 10_000)
    monkeypatch.setattr(fast, "_prove", lambda *_: pytest.fail("proved"))
    assert choose(load_tokenizer(trained), "auto").fast == ""


def test_a_user_without_a_home(trained, monkeypatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(fast.Path, "expanduser", lambda self: (_ for _ in ()).throw(RuntimeError("no home")))
    assert choose(load_tokenizer(trained), "auto").fast


def test_without_the_extra(trained, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(fast, "find_spec", lambda name: None)
    fast_version.cache_clear()
    try:
        assert choose(load_tokenizer(trained), "auto").fast == ""
    finally:
        fast_version.cache_clear()


def test_every_so_many_documents_are_compared(trained, wrong) -> None:
    quick = choose(load_tokenizer(trained), "fastokens")
    texts = ["a dog"] * (CHECKED + 2)
    for row in (0, CHECKED):
        with pytest.raises(
            EngineDiffersError, match=r"gives other ids for the text 'a zebra'.*engine=tokenizers"
        ):
            quick.encode(strings(*texts[:row], "a zebra", *texts[row + 1 :]))
        assert "a zebra" in choose(quick, "auto").distrusts
        assert choose(quick, "tokenizers").distrusts == choose(quick, "auto").distrusts
    unchecked = quick.encode(strings(*texts[:1], "a zebra", *texts[2:]))
    assert unchecked.lengths.size == len(texts)


# ------------------------------------------------------------------------------------------ whole commands


@pytest.fixture
def corpus(tmp_path):
    """Write three shards; the fast engine can be seen to be wrong in the second, and is wrong in the first too."""
    drawn = random.Random(3)
    words = WORDS.split()
    for number in range(3):
        texts = [" ".join(drawn.choices(words, k=12)) for _ in range(5)]
        if number < 2:
            texts[0 if number else 3] = "a zebra crossing"
        path = tmp_path / f"v0/documents/{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [{"id": f"{number}-{row}", "source": "s", "text": text} for row, text in enumerate(texts)]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "v0"


def arrays(folder) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".npy", ".h5")
    }


@pytest.fixture
def tokenizer(trained, tmp_path) -> str:
    (tmp_path / "t.json").write_text(trained)
    return str(tmp_path / "t.json")


def commands(tokenizer):
    def mixed(dataset, to, **options):
        tokens = {"to": to, "tokenizer": tokenizer, **options}
        return dk.mix(dataset, to=f"{to}-documents", ragged=tokens, progress=False)

    return {
        "ragged": lambda dataset, to, **options: dk.ragged(
            dataset, to, tokenizer=tokenizer, progress=False, **options
        ),
        "hdf5": lambda dataset, to, **options: dk.hdf5(
            dataset, to, tokenizer=tokenizer, max_seq_length=16, progress=False, **options
        ),
        "mix": mixed,
    }


@pytest.mark.parametrize("verb", ["ragged", "hdf5", "mix"])
def test_what_the_engine_made_is_made_anew(verb, corpus, tokenizer, wrong, tmp_path) -> None:
    run = commands(tokenizer)[verb]
    run(str(corpus), str(tmp_path / "slow"), engine="tokenizers")
    shard = corpus / "documents/1.jsonl"
    seen = shard.read_text()
    shard.write_text(seen.replace("zebra", "fox"))
    run(str(corpus), str(tmp_path / "fast"))  # nobody sees that the first shard is wrong
    shard.write_text(seen)
    summary = run(str(corpus), str(tmp_path / "fast"))
    assert arrays(tmp_path / "fast") == arrays(tmp_path / "slow")
    assert summary.exit_status == 0
    assert any("gives other ids for the text 'a zebra crossing'" in note for note in summary.notes)
    again = run(str(corpus), str(tmp_path / "fast"))
    assert again.done == 0
    names = ("*.json", "data_params.json")
    said = [path.read_text() for name in names for path in (tmp_path / "fast").glob(name)]
    assert all("a zebra crossing" in text for text in said)


def test_an_engine_that_was_named_is_not_replaced(corpus, tokenizer, wrong, tmp_path) -> None:
    with pytest.raises(StageError, match="engine=tokenizers with overwrite"):
        commands(tokenizer)["ragged"](str(corpus), str(tmp_path / "out"), engine="fastokens")
