"""Pairs and dialogues to ids: what is predicted, what stands around texts, and records that cannot be used."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from dolma_dask.errors import UsageError
from dolma_dask.formats.findings import SPELLED, TOO_LONG, TOO_SHORT, UNUSABLE
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.pairs import PairRecipe
from dolma_dask.tokens.specials import Specials, with_token

WORDS = ["<s>", "</s>", "a", "b", "c", "d", "e", "f", "1", "user", "bot"]
BOS, EOS, SEP = 0, 1, 11


@pytest.fixture(scope="module")
def engine():
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "f"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return load_tokenizer(tokenizer.to_str())


@pytest.fixture
def pairs(engine):
    """A function that encodes records with options."""

    def encode(*records, head=(), **options):
        keys = {} if "multi_turn_key" in options else {"prompt_key": "prompt", "completion_key": "completion"}
        recipe = PairRecipe(engine, Specials(EOS, 0, head), **{"least": 0, "length": 99, **keys, **options})
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        tokens, counts = recipe.encode(pa.array(lines, pa.large_string()))
        assert tokens.ids.dtype == np.int32
        words = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1]) if tokens.lengths.size else []
        return [shown(one) for one in words], tokens.findings, counts

    return encode


def shown(words) -> str:
    """Names of tokens, those that are predicted in capitals."""
    names = [[*WORDS, "sep"][word & 0x7FFFFFFF] for word in words.tolist()]
    return " ".join(name.upper() if word >= 0 else name for name, word in zip(names, words, strict=True))


def chat(*texts):
    return {"turns": [{"role": "x", "content": text} for text in texts]}


CHAT = {"multi_turn_key": "turns", "multi_turn_content_key": "content"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["a b C D </S>", "b A </S>"]),
        ({"joins_turns": True}, ["a b C D </S>", "b A </S>"]),
        ({"head": (BOS,)}, ["<s> a b C D </S>", "<s> b A </S>"]),
        ({"eos_after_prompt": True}, ["a b </s> C D </S>", "b </s> A </S>"]),
        ({"sep_id": SEP, "eos_after_prompt": True}, ["a b </s> sep C D </S>", "b </s> sep A </S>"]),
        (
            {"prompt_prefix": "user", "completion_prefix": "bot e"},
            ["user a b bot e C D </S>", "user b bot e A </S>"],
        ),
    ],
)
def test_only_completions_and_their_ends_are_predicted(options, expected, pairs):
    records = [{"prompt": "a b", "completion": "c d"}, {"prompt": "b", "completion": "a"}]
    sequences, findings, counts = pairs(*records, **options)
    assert sequences == expected
    assert (findings, counts.documents, counts.empty) == ((), 2, 0)
    assert (counts.raw_chars, counts.normalized_bytes) == (8, 8)


def test_turns_of_a_dialogue(pairs):
    record = chat("a", "b", "c", "d e")
    sequences, _, counts = pairs(record, **CHAT, head=(BOS,), joins_turns=True, prompt_prefix="user")
    assert (sequences, counts.documents) == (["<s> user a B </S> user c D E </S>"], 1)
    sequences, _, counts = pairs(record, **CHAT, head=(BOS,), prompt_prefix="user")
    assert (sequences, counts.documents) == (["<s> user a B </S>", "<s> user c D E </S>"], 2)
    assert pairs({"turns": ["a", "b"]}, multi_turn_key="turns")[0] == ["a B </S>"]


def test_no_end_of_a_document(engine):
    recipe = PairRecipe(
        engine, Specials(None, 0), prompt_key="p", completion_key="c", eos_after_prompt=True, least=0
    )
    tokens, _ = recipe.encode(pa.array(['{"p":"a","c":"b"}'], pa.large_string()))
    assert shown(tokens.ids) == "a B"


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), (1, "1"), (["a", "b"], "a b"), (["a"], "a")],
)
def test_values_that_are_texts(value, text, pairs):
    assert pairs({"prompt": value, "completion": "c"})[0] == [f"{text} C </S>"]


def test_fields_by_path(pairs):
    keys = {"prompt_key": "x.y", "completion_key": "z"}
    nested, literal = {"x": {"y": "a"}, "z": "b"}, {"x": {"y": "a"}, "x.y": "c", "z": "b"}
    assert pairs(nested, literal, {"x": "a", "z": "b"}, **keys)[0] == ["a B </S>", "c B </S>"]
    assert pairs({"x": "a", "z": "b"}, **keys)[1][0].what == "no field 'x.y'; the record has 'x', 'z'"


UNUSABLE_RECORDS = {
    "no field 'completion'; the record has 'prompt'": {"prompt": "a"},
    "null in 'prompt'": {"prompt": None, "completion": "a"},
    "no text in 'prompt'": {"prompt": "", "completion": "a"},
    "an object in 'completion'": {"prompt": "a", "completion": {}},
    "a boolean in 'completion'": {"prompt": "a", "completion": True},
    "no text in 'completion'": {"prompt": "a", "completion": []},
    "an array in 'completion' with a number among its texts": {"prompt": "a", "completion": ["a", 1]},
    "a text of which the tokenizer makes no tokens": {"prompt": " ", "completion": "a"},
    "no record (not an object at byte 0; expected a JSON object, found a string)": '"a"',
    "no record (invalid json at byte 1; expected one JSON object per line; the line ends too early at byte 1)": "{",
}


def test_records_that_cannot_be_used_are_named_and_no_neighbour_changes(pairs):
    bad = list(UNUSABLE_RECORDS.values())
    good = [{"prompt": "a", "completion": name} for name in "abcdef"]
    mixed = [record for at, one in enumerate(bad) for record in (one, good[at % 6])]
    sequences, findings, counts = pairs(*mixed)
    assert sequences == [f"a {name.upper()} </S>" for name in ("abcdef" * 2)[: len(bad)]]
    assert [(one.row, one.kind, one.what) for one in findings] == [
        (2 * at, UNUSABLE, what) for at, what in enumerate(UNUSABLE_RECORDS)
    ]
    assert (counts.documents, counts.empty) == (len(bad), 0)


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (chat("a", "b", "c"), "3 items in 'turns', no pairs of a prompt and a completion"),
        (chat(), "0 items in 'turns', no pairs of a prompt and a completion"),
        (chat("a"), "1 item in 'turns', no pairs of a prompt and a completion"),
        ({"turns": "a"}, "a string in 'turns'"),
        ({"turns": ["a", "b"]}, "a string in 'turns.0'"),
        ({"turns": [{"content": "a"}, {"text": "b"}]}, "no field 'turns.1.content'; 'turns.1' has 'text'"),
        ({"turns": [{"content": "a"}, {"content": ""}]}, "no text in 'turns.1.content'"),
        (chat("a", "b", " ", "c"), "a text of which the tokenizer makes no tokens"),
    ],
)
@pytest.mark.parametrize("joins", [False, True])
def test_dialogues_that_cannot_be_used(joins, record, what, pairs):
    sequences, findings, counts = pairs(record, chat("a", "b"), **CHAT, joins_turns=joins)
    assert [(one.row, one.kind, one.what) for one in findings] == [(0, UNUSABLE, what)]
    assert (sequences, counts.documents) == (["a B </S>"], 1)


@pytest.mark.parametrize(("joins", "size"), [(False, 6), (True, 5)])
def test_sequences_that_do_not_fit_are_left_out(joins, size, pairs):
    """A dialogue of one row has a token more than positions; a pair shows its last token in the row too."""
    record = {"prompt": "a b c", "completion": "d e"}
    found = {}
    for length, least in [(size, size), (size - 1, 0), (99, size + 1)]:
        sequences, findings, counts = pairs(record, length=length, least=least, joins_turns=joins)
        assert (len(sequences) + counts.empty, counts.documents) == (1, 1)
        found[length, least] = [(one.kind, one.what) for one in findings]
    assert list(found.values()) == [
        [],
        [(TOO_LONG, f"{size} tokens, at most {size - 1}")],
        [(TOO_SHORT, f"{size} tokens, at least {size + 1}")],
    ]


def test_special_tokens_in_texts_and_in_prefixes(engine, pairs):
    lines = pa.array([json.dumps({"prompt": "a </s> b", "completion": "a </s>"})], pa.large_string())
    keys = {"prompt_key": "prompt", "completion_key": "completion", "prompt_prefix": "</s>", "least": 0}
    for in_text, count in (("encode", 4), ("text", 2)):
        recipe = PairRecipe(replace(engine, in_text=in_text), Specials(EOS, 0), **keys)
        tokens, counts = recipe.encode(lines)
        assert np.count_nonzero(tokens.ids & 0x7FFFFFFF == EOS) == count
        assert tokens.ids[0] & 0x7FFFFFFF == EOS
        assert [(one.row, one.kind) for one in tokens.findings] == [(0, SPELLED)] * (count == 2)
        assert counts.spelled == (count == 2)


def test_a_text_that_the_tokenizer_cannot_encode_makes_its_record_alone_unusable():
    tokenizer = Tokenizer(models.WordLevel({"</s>": 0, "a": 1, "b": 2}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine = replace(load_tokenizer(tokenizer.to_str()), in_text="text")
    recipe = PairRecipe(engine, Specials(0, 0), prompt_key="p", completion_key="c", least=0)
    records = [{"p": "a", "c": "b"}, {"p": "x", "c": "b"}, {"p": "b", "c": "a"}, {"p": "b", "c": "a x"}]
    tokens, counts = recipe.encode(pa.array(list(map(json.dumps, records)), pa.large_string()))
    assert (tokens.ids & 0x7FFFFFFF).tolist() == [1, 2, 0, 2, 1, 0]
    assert [(one.row, one.kind) for one in tokens.findings] == [(1, UNUSABLE), (3, UNUSABLE)]
    assert counts.documents == 2


def test_records_as_bytes_and_no_records(engine, pairs):
    recipe = PairRecipe(engine, Specials(EOS, 0), prompt_key="p", completion_key="c", least=0)
    tokens, _ = recipe.encode(pa.array([b'{"p":"a","c":"b"}', None], pa.large_binary()))
    assert (shown(tokens.ids), [one.row for one in tokens.findings]) == ("a B </S>", [1])
    assert pairs()[0] == []
    assert pairs("{}")[0] == []


@pytest.mark.parametrize("options", [{}, {"prompt_key": "a"}])
def test_options_that_cannot_work(options, engine):
    with pytest.raises(UsageError, match="expected"):
        PairRecipe(engine, Specials(EOS, 0), **options)


def test_a_new_token_stands_behind_the_vocabulary(engine):
    grown, number = with_token(engine, "<sep>")
    assert (number, grown.vocab_size, engine.vocab_size) == (11, 12, 11)
    assert grown.encode(pa.array(["a <sep>"], pa.large_string())).ids.tolist() == [2, 11]
    assert with_token(grown, "<sep>") == (grown, 11)
    assert with_token(engine, "</s>") == (engine, 1)


def test_a_new_token_in_a_vocabulary_with_gaps():
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 2}, "a"))
    with pytest.raises(UsageError, match="below 3 without a token"):
        with_token(load_tokenizer(tokenizer.to_str()), "<sep>")


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        (["system", "user", "assistant", "user"], "a turn of 'system' in 'turns.0'"),
        (["user", "user", "assistant", "assistant"], "a turn of 'user' in 'turns.1'"),
        (["gpt", "human"], "a turn of 'gpt' in 'turns.0'"),
        (["user", "tool"], "a turn of 'tool' in 'turns.1'"),
    ],
)
@pytest.mark.parametrize("field", ["role", "from"])
def test_turns_of_another_role_than_their_place_are_named(engine, roles, message, field):
    record = json.dumps({"turns": [{field: role, "content": "a"} for role in roles]})
    options = {"multi_turn_key": "turns", "multi_turn_content_key": "content", "least": 0}
    for by_position in (False, True):
        recipe = PairRecipe(engine, Specials(EOS, 0), by_position=by_position, **options)
        tokens, _ = recipe.encode(pa.array([record], pa.large_string()))
        assert bool(len(tokens.lengths)) is by_position
        assert by_position or message in tokens.findings[0].what


def test_turns_of_alternating_roles_are_as_without_them(engine):
    options = {"multi_turn_key": "turns", "multi_turn_content_key": "content", "least": 0}
    recipe = PairRecipe(engine, Specials(EOS, 0), **options)
    found = []
    for roles in (("human", "gpt"), ("user", "assistant"), ("alice", "bob"), (None, None)):
        turns = [{"from": roles[at % 2], "content": text} for at, text in enumerate("abab")]
        turns = [turn if turn["from"] else {"content": turn["content"]} for turn in turns]
        tokens, _ = recipe.encode(pa.array([json.dumps({"turns": turns})], pa.large_string()))
        found.append(tokens.ids.tolist())
    assert found[0]
    assert all(one == found[0] for one in found)
