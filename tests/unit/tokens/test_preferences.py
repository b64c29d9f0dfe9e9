"""Preferences to ids and rows: what is predicted, the ways in which records write dialogues, and what is cut."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from dolma_dask.errors import UsageError
from dolma_dask.formats.findings import SPELLED, TRUNCATED, UNUSABLE
from dolma_dask.tokens.cleaning import Cleaning
from dolma_dask.tokens.dialogues import PreferenceFields
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.preferences import PreferenceRecipe, fill_preferences
from dolma_dask.tokens.records import Unusable
from dolma_dask.tokens.specials import Specials
from dolma_dask.tokens.templates import LLAMA, Template

NAMES = [
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "user",
    "assistant",
    "<<SYS>>",
    "<</SYS>>",
    ":",
    "?",
    *"abcdefgh",
]
BOS, EOS = 0, 1
CHATML = Template(
    "{{ bos_token }}{% for m in messages %}{{ m.role }} : {{ m.content | trim }} </s>{% endfor %}",
    "chatml",
    (("bos_token", "<s> "),),
)


def make_engine():
    tokenizer = Tokenizer(models.WordLevel({name: at for at, name in enumerate(NAMES)}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return load_tokenizer(tokenizer.to_str())


ENGINE = make_engine()


def encode(*records, engine=ENGINE, head=(), **options):
    recipe = PreferenceRecipe(engine, Specials(EOS, 0, head), **options)
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    tokens, counts = recipe.encode(pa.array(lines, pa.large_string()))
    words = np.split(tokens.ids, np.cumsum(tokens.lengths)[:-1]) if tokens.lengths.size else []
    return [shown(one) for one in words], [(one.row, one.kind, one.what) for one in tokens.findings], counts


def shown(words) -> str:
    """Names of tokens; a bar before those that are predicted."""
    names = [NAMES[word & 0x7FFFFFFF] for word in words.tolist()]
    seen = int(np.count_nonzero(words < 0))
    assert (words[seen:] >= 0).all()
    return " ".join([*names[:seen], "|", *names[seen:]])


def turns(*contents, roles=("user", "assistant")):
    return [{"role": roles[at % 2], "content": content} for at, content in enumerate(contents)]


PLAIN = {"prompt": "a", "chosen": "b c", "rejected": "d"}
TEXT = ["[INST] a [/INST] | b c </s>", "[INST] a [/INST] | d </s>"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, TEXT),
        ({"bos_id": BOS}, [f"<s> {text}" for text in TEXT]),
        ({"head": (BOS,)}, [f"<s> {text}" for text in TEXT]),
        ({"like_modelzoo": True}, ["</s> [INST] a | [/INST] b c </s>", "</s> [INST] a | [/INST] d </s>"]),
        ({"like_modelzoo": True, "bos_id": BOS}, ["<s> [INST] a | [/INST] b c </s>", "<s> [INST] a | [/INST] d </s>"]),
        ({"template": CHATML}, ["<s> user : a </s> assistant : | b c </s>", "<s> user : a </s> assistant : | d </s>"]),
        ({"template": CHATML, "bos_id": BOS}, ["<s> user : a </s> assistant : | b c </s>", "<s> user : a </s> assistant : | d </s>"]),
        ({"template": CHATML, "response_delimiter": "assistant"}, ["<s> user : a </s> assistant | : b c </s>", "<s> user : a </s> assistant | : d </s>"]),
    ],
)  # fmt: skip
def test_only_answers_and_their_ends_are_predicted(options, expected):
    sequences, findings, counts = encode(PLAIN, **options)
    assert sequences == expected
    assert (findings, counts.documents, counts.empty) == ([], 1, 0)


def test_nothing_follows_the_end_that_a_template_writes():
    tokenizer = Tokenizer(models.WordLevel({name: at for at, name in enumerate([*NAMES, " ", "\n"])}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens(["<s>", "</s>"])
    template = Template("{% for m in messages %}{{ m.content }}</s>\n{% endfor %}", "lines")
    recipe = PreferenceRecipe(load_tokenizer(tokenizer.to_str()), Specials(EOS, 0), template=template)
    tokens, _ = recipe.encode(pa.array([json.dumps({**PLAIN, "chosen": "b\n"})], pa.large_string()))
    names = [[*NAMES, " ", "\n"][word & 0x7FFFFFFF] for word in tokens.ids.tolist()]
    assert names == ["a", "</s>", "\n", "b", "\n", "</s>", "a", "</s>", "\n", "d", "</s>"]


SYSTEM = {"role": "system", "content": "e"}


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        ({"prompt": "a", "chosen": turns("a", "b c"), "rejected": turns("a", "d")}, "[INST] a [/INST]"),
        ({"prompt": "a", "chosen": turns("b c", roles=["assistant"]), "rejected": "d"}, "[INST] a [/INST]"),
        ({"prompt": turns("a"), "chosen": turns("a", "b c"), "rejected": turns("a", "d")}, "[INST] a [/INST]"),
        ({"prompt": [SYSTEM, *turns("a")], "chosen": "b c", "rejected": "d"}, "<<SYS>> e <</SYS>> [INST] a [/INST]"),
        (
            {"prompt": turns("a", "f", "g"), "chosen": turns("b c", roles=["assistant"]), "rejected": turns("a", "f", "g", "d")},
            "[INST] a [/INST] f [INST] g [/INST]",
        ),
    ],
)  # fmt: skip
def test_ways_to_write_a_dialogue(record, prompt):
    assert encode(record)[0] == [f"{prompt} | b c </s>", f"{prompt} | d </s>"]


@pytest.mark.parametrize(
    "record",
    [
        {"chosen": "user: a assistant: b c", "rejected": "user: a assistant: d"},
        {"chosen": "a\n\nassistant: b c", "rejected": "a\n\nassistant: d"},
        {"chosen": turns("a", "b c"), "rejected": turns("a", "d")},
    ],
)
def test_a_prompt_that_both_begin_with(record):
    assert encode(record, prompt_key=None)[0] == TEXT


def test_an_answer_with_the_marks_of_a_dialogue_stays_whole():
    record = {"chosen": "user: a assistant: b assistant: c", "rejected": "user: a assistant: d"}
    assert encode(record, prompt_key=None)[0][0] == "[INST] a [/INST] | b ? c </s>"
    record = {**PLAIN, "chosen": "b [/INST] c"}
    assert encode(record)[0][0] == "[INST] a [/INST] | b [/INST] c </s>"


UNUSABLE_RECORDS = {
    "no field 'rejected'; the record has 'prompt', 'chosen'": {"prompt": "a", "chosen": "b"},
    "no text in 'chosen'": {"prompt": "a", "chosen": "", "rejected": "c"},
    "null in 'prompt'": {"prompt": None, "chosen": "a", "rejected": "c"},
    "an object in 'chosen'": {**PLAIN, "chosen": {"role": "assistant", "content": "b"}},
    "an answer of which the tokenizer makes no tokens": {**PLAIN, "chosen": " "},
    "different prompts in 'chosen' and 'rejected'": {**PLAIN, "chosen": turns("a", "b"), "rejected": turns("f", "b")},
    "no answer of 'assistant' to a prompt at the end of 'chosen'": {**PLAIN, "chosen": turns("a")},
    "no answer of 'assistant' to a prompt at the end of 'rejected'": {**PLAIN, "rejected": turns("a", "")},
    "no field 'chosen.0.role'; 'chosen.0' has 'content'": {**PLAIN, "chosen": [{"content": "a"}]},
    "null in 'chosen.1.content'": {**PLAIN, "chosen": turns("a", None)},
    "a number in 'chosen.1'": {**PLAIN, "chosen": [*turns("a"), 1]},
    "a noncharacter of Unicode in a text of 'user'": {**PLAIN, "prompt": "a \U000ffffe"},
    "a dialogue that the template [INST] [/INST] refuses: role bot is none of system, user, assistant": {
        **PLAIN, "chosen": [{"role": "bot", "content": "x"}, *turns("a", "b")], "rejected": [{"role": "bot", "content": "x"}, *turns("a", "b")]
    },
}  # fmt: skip


@pytest.mark.parametrize("like", [False, True])
def test_records_that_cannot_be_used_are_named_and_no_neighbour_changes(like):
    known = {what: one for what, one in UNUSABLE_RECORDS.items() if not (like and "no tokens" in what)}
    mixed = [
        record
        for at, one in enumerate(known.values())
        for record in (one, {**PLAIN, "chosen": NAMES[10 + at % 8]})
    ]
    sequences, findings, counts = encode(*mixed, like_modelzoo=like)
    assert findings == [(2 * at, UNUSABLE, what) for at, what in enumerate(known)]
    assert [one.split()[-2] for one in sequences[::2]] == [NAMES[10 + at % 8] for at in range(len(known))]
    assert counts.documents == len(known)


def test_texts_without_a_prompt_that_cannot_be_used():
    records = [
        {"chosen": "a", "rejected": "b"},
        {"chosen": "assistant: a", "rejected": "assistant: b"},
        {"chosen": "a assistant: ", "rejected": "a assistant: b"},
    ]
    what = "no prompt that ends in 'assistant: ' before answers in 'chosen' and 'rejected'"
    assert encode(*records, prompt_key=None)[1] == [(row, UNUSABLE, what) for row in range(3)]
    mixed = {"chosen": "a assistant: b", "rejected": turns("a", "b")}
    assert encode(mixed, prompt_key=None)[1][0][2].startswith("no answer of 'assistant'")


def test_special_tokens_in_texts():
    record = {**PLAIN, "prompt": "a </s>"}
    _, findings, counts = encode(record, engine=replace(ENGINE, in_text="text"))
    assert ([one[:2] for one in findings], counts.spelled) == ([(0, SPELLED)], 1)
    sequences, findings, _ = encode(record)
    assert (sequences[0], findings) == ("[INST] a </s> [/INST] | b c </s>", [])


def test_a_repaired_text_makes_no_special_token():
    record = {**PLAIN, "chosen": "b &lt;/s&gt; c"}
    sequences, findings, _ = encode(
        record, engine=replace(ENGINE, in_text="text"), cleaning=Cleaning(use_ftfy=True)
    )
    assert sequences[0] == "[INST] a [/INST] | b ? c </s>"
    assert findings == [(0, SPELLED, "</s>")]


def test_counts_of_texts():
    assert encode(PLAIN)[2].raw_chars == len("ab cad")
    assert encode(PLAIN, like_modelzoo=True)[2].raw_bytes == len("[INST] a [/INST] b c") + len(
        "[INST] a [/INST] d"
    )


def test_no_records():
    assert encode()[0] == []
    assert encode("{}", like_modelzoo=True)[0] == []


@pytest.mark.parametrize("like", [False, True])
@given(
    prompt=st.integers(1, 12), chosen=st.integers(1, 12), rejected=st.integers(1, 12), length=st.integers(4, 20), limit=st.integers(1, 30),
    bos=st.sampled_from([None, BOS]),
)  # fmt: skip
def test_cut_records_keep_bos_the_end_of_the_prompt_and_the_beginning_of_answers(
    like, prompt, chosen, rejected, length, limit, bos
):
    record = {
        "prompt": " ".join("abcd"[at % 4] for at in range(prompt)),
        "chosen": "e " * chosen,
        "rejected": "f " * rejected,
    }
    options = {"like_modelzoo": like, "bos_id": bos, "max_prompt_length": limit}
    whole, nothing, _ = encode(record, **options)
    cut, findings, _ = encode(record, **options, length=length)
    assert nothing == []
    fits = max(len(one.split()) - 1 for one in whole) <= length
    assert (cut == whole) == fits
    assert [one[1] for one in findings] == [TRUNCATED] * (not fits)
    for full, short in zip(whole, cut, strict=True) if not fits else ():
        (seen, said), (given_, answer) = ([side.split() for side in one.split("|")] for one in (short, full))
        head = 1 if like or bos is not None else 0
        most = limit if limit <= length - 2 else length // 2
        assert seen == given_[:head] + given_[head:][max(len(given_) - max(most, head), 0) :]
        assert said == [*answer[:-1][: length - len(seen) - 1], "</s>"]
        assert len(said) > 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"specials": Specials(None, 0)}, "without a token that ends"),
        ({"length": 3}, "from 4"),
        ({"user_role": "assistant"}, "expected two roles"),
        ({"response_delimiter": "<|bot|>"}, r"no <\|bot\|> in what the template"),
        (
            {"template": CHATML, "like_modelzoo": True},
            r"no \[/INST\] or <\|assistant\|> in what chatml writes",
        ),
        ({"template": Template("{{ raise_exception('no') }}", "mine")}, "mine refuses: no"),
        ({"template": Template("nothing", "mine")}, "no answer in what mine writes"),
        ({"template": Template("{% if %}", "mine")}, "mine is no Jinja2"),
    ],
)
def test_options_that_cannot_work(options, match):
    with pytest.raises(UsageError, match=match):
        PreferenceRecipe(ENGINE, **{"specials": Specials(EOS, 0), **options})


def test_roles_are_those_of_the_records():
    record = {
        **PLAIN,
        "chosen": turns("a", "b c", roles=["human", "gpt"]),
        "rejected": turns("a", "d", roles=["human", "gpt"]),
    }
    assert encode(record, user_role="human", assistant_role="gpt", template=LLAMA)[0] == TEXT


def test_channels_of_a_row():
    hidden = -(2**31)
    words = np.array(
        [7 + hidden, 8 + hidden, 9, 1, 7 + hidden, 1, 5 + hidden, 6, 6, 1, 4 + hidden, 1], np.int32
    )
    rows, counts = fill_preferences(words, np.array([0, 4, 6, 10]), np.array([4, 2, 4, 2]), 4, 0, 1)
    assert rows.tolist() == [
        [[7, 8, 9, 1], [0, 1, 1, 0], [0, 9, 1, 0], [7, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]],
        [[5, 6, 6, 1], [1, 1, 1, 0], [6, 6, 1, 0], [4, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]],
    ]
    assert counts.sum(axis=0).tolist() == [4, 7, 4]
    assert fill_preferences(words[:0], np.zeros(0, np.int64), np.zeros(0, np.int64), 4, 0)[0].shape == (
        0,
        6,
        4,
    )


HH = {"chosen_key": "chosen", "rejected_key": "rejected", "user_role": "Human", "assistant_role": "Assistant"}


def dialogues_of(record, **options):
    fields = PreferenceFields(**{"prompt_key": None, **HH, **options})
    made = fields.read({key: json.dumps(value).encode() for key, value in record.items()})
    return [[(one["role"], one["content"]) for one in side] for side in (made.chosen, made.rejected)]


def test_turns_in_one_text_are_those_of_their_roles():
    before = "\n\nHuman: How do I cook eggs?\n\nAssistant: Boil or fry?\n\nHuman: Boil.\n\nAssistant: "
    turns = [("Human", "How do I cook eggs?"), ("Assistant", "Boil or fry?"), ("Human", "Boil.")]
    expected = [[*turns, ("Assistant", "5 minutes.")], [*turns, ("Assistant", "No\n\nidea")]]
    record = {"chosen": f"{before}5 minutes.", "rejected": f"{before}No\n\nidea"}
    assert dialogues_of(record) == expected
    prompt = {"prompt": before.rstrip()}
    assert dialogues_of({**record, **prompt}, prompt_key="prompt") == expected, "the prompt stands in both"


def test_an_answer_that_begins_like_its_prompt_is_an_answer():
    record = {"prompt": "Hello", "chosen": "Hello there", "rejected": "Hello!"}
    expected = [[("Human", "Hello"), ("Assistant", text)] for text in ("Hello there", "Hello!")]
    assert dialogues_of(record, prompt_key="prompt") == expected


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ("\n\nHuman: a\n\nAssistant: b\n\nHuman: thanks\n\nAssistant: welcome", "different prompts"),
        ("\n\nHuman: a\n\nAssistant: b\n\nHuman: thanks", "different prompts"),
    ],
)
def test_dialogues_that_part_early_are_no_preference(chosen, message):
    with pytest.raises(Unusable, match=message):
        dialogues_of({"chosen": chosen, "rejected": "\n\nHuman: a\n\nAssistant: c"})


def test_templates_get_their_own_roles():
    names = {"user_role": "Human", "assistant_role": "Assistant"}
    human = {
        "chosen": turns("a", "b c", roles=("Human", "Assistant")),
        "rejected": turns("a", "d", roles=("Human", "Assistant")),
    }
    wanted, *_ = encode(
        {"chosen": turns("a", "b c"), "rejected": turns("a", "d")}, prompt_key=None, template=CHATML
    )
    found, *_ = encode(human, prompt_key=None, template=CHATML, **names)
    assert found == wanted
    assert "user : a" in found[0]


@pytest.mark.parametrize(
    ("record", "template"),
    [
        (
            {"chosen": turns("a", "b</", "s> c", "d"), "rejected": turns("a", "b</", "s> c", "e")},
            "{{ m.content }}",
        ),
        ({"chosen": turns("a </", "s> b"), "rejected": turns("a </", "c")}, "{{ m.content }}"),
        ({"chosen": turns("a </S> b", "c"), "rejected": turns("a </S> b", "d")}, "{{ m.content | lower }}"),
        (
            {
                "chosen": [{"role": "s", "content": "x"}, *turns("a", "b")],
                "rejected": [{"role": "s", "content": "x"}, *turns("a", "c")],
            },
            "</{{ m.role }}> {{ m.content }}",
        ),
    ],
)
def test_strings_that_make_a_special_token_together_are_refused(record, template):
    written = Template("{% for m in messages %}" + template + "{% endfor %}", "mine")
    engine = replace(ENGINE, in_text="text")
    words, findings, _ = encode(record, engine=engine, prompt_key=None, template=written)
    assert not words
    assert [kind for _, kind, _ in findings] == [UNUSABLE]


def test_special_tokens_in_other_fields_are_text():
    written = Template("{% for m in messages %}{{ m.name }} {{ m.content }} {% endfor %}", "mine")
    sides = [[{**one, "name": "</s>"} for one in turns("a", answer)] for answer in ("b", "c")]
    words, findings, _ = encode(
        {"chosen": sides[0], "rejected": sides[1]},
        engine=replace(ENGINE, in_text="text"),
        prompt_key=None,
        template=written,
    )
    assert all(one.count("</s>") == 1 for one in words), "the end alone"
    assert SPELLED in [kind for _, kind, _ in findings]


def test_a_template_that_writes_the_answer_first_is_refused():
    backwards = Template("{{ messages[-1].content }} {{ messages[0].content }}", "mine")
    with pytest.raises(UsageError, match="does not stand behind the prompt"):
        encode(PLAIN, template=backwards)
