"""Sequences of create_hdf5_dataset's modes for pairs, dialogues and preferences: rows of ours are the same, or sane where it is defective."""

import json
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dolma_dask.formats.findings import TOO_LONG, TRUNCATED, UNUSABLE
from dolma_dask.tokens.cleaning import Cleaning
from dolma_dask.tokens.engine import build, load_tokenizer
from dolma_dask.tokens.pairs import PairRecipe
from dolma_dask.tokens.preferences import PreferenceRecipe, fill_preferences
from dolma_dask.tokens.specials import find_specials, load_gpt2, with_token

pytestmark = pytest.mark.conformance

ID = 0x7FFFFFFF
"""Bits of a staged word that are the id."""


@pytest.fixture(scope="module")
def inputs(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cerebras")
    with tarfile.open(shared / "conformance/cerebras/inputs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "inputs"


@pytest.fixture(scope="module")
def neox(shared):
    engine = load_tokenizer(shared / "tokenizers/neox-encoder.json")
    return {"engine": engine, "specials": find_specials(engine), "cleaning": Cleaning(use_ftfy=True)}


@pytest.fixture(scope="module")
def gpt2(shared):
    engine = load_gpt2(
        *(str(shared / "tokenizers" / name) for name in ("gpt2-vocab.bpe", "gpt2-encoder.json"))
    )
    specials = find_specials(engine, eos="<|endoftext|>", pad="<|endoftext|>")
    return {"engine": engine, "specials": specials, "cleaning": Cleaning(use_ftfy=True)}


def lines_of(folder: Path) -> list[str]:
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


def encode(recipe, lines):
    tokens, counts = recipe.encode(pa.array(lines, pa.large_string()))
    ends = np.cumsum(tokens.lengths)[:-1]
    sequences = np.split(tokens.ids, ends) if tokens.lengths.size else []
    return sequences, tokens.findings, counts


def text_of(engine, words: np.ndarray) -> str:
    return build(engine).tokenizer.decode((words & ID).tolist(), skip_special_tokens=False)


def golden(shared: Path, name: str) -> np.ndarray:
    (path,) = (shared / "conformance/cerebras/cases" / name).glob("*.h5")
    with h5py.File(path) as file:
        return file["data"][:]


def counted(shared: Path, name: str) -> dict[str, int]:
    return json.loads((shared / "conformance/cerebras/cases" / name / "post-process.json").read_text())


TEXT_COUNTS = {
    "processed_files": "documents",
    "discarded_files": "empty",
    "raw_chars_count": "raw_chars",
    "raw_bytes_count": "raw_bytes",
    "normalized_chars_count": "normalized_chars",
    "normalized_bytes_count": "normalized_bytes",
}


def miscounted(counts, theirs) -> set[str]:
    return {name for name, ours in TEXT_COUNTS.items() if getattr(counts, ours) != theirs[name]}


def row_of(sequences, length: int, pad: int) -> np.ndarray:
    """Put sequences into one row of ids, loss mask, labels, attention span and position."""
    row = np.zeros((5, length), np.int32)
    row[[0, 2]] = pad
    at = 0
    for words in sequences:
        n = len(words) - 1
        place = slice(at, at + n)
        row[0, place], row[1, place], row[2, place] = words[:-1] & ID, words[1:] >= 0, words[1:] & ID
        row[3, place], row[4, place] = np.arange(n)[::-1], np.arange(n)
        at += n
    return row


def packed(sequences, length: int):
    """Put the sequences of a chunk together as the original: from the last on, each into the nearest earlier bin with room.

    The files are smaller than a chunk of 128 KiB.
    """
    bins = [[one] for one in sequences]
    sizes = [len(one) - 1 for one in sequences]
    at = len(bins) - 1
    while at > 0:
        for earlier in range(at - 1, -1, -1):
            if sizes[at] + sizes[earlier] <= length:
                bins[earlier] += bins.pop(at)
                sizes[earlier] += sizes.pop(at)
                break
        at -= 1
    return bins


PAIR = {"prompt_key": "prompt", "completion_key": "completion", "length": 256, "least": 6}
DIALOGUE = {"multi_turn_key": "messages", "multi_turn_content_key": "content", "length": 256, "least": 6}


def test_rows_and_counts_of_pairs(shared, inputs, neox):
    sequences, findings, counts = encode(PairRecipe(**neox, **PAIR), lines_of(inputs / "sum"))
    rows = np.stack([row_of([one], 256, 1)[:3] for one in sequences])
    for row, one in zip(rows, sequences, strict=True):
        row[0, len(one) - 1] = one[-1]  # pairs show the last token too, and predict nothing from it
    assert np.array_equal(rows, golden(shared, "sum_neox"))
    assert not miscounted(counts, counted(shared, "sum_neox"))
    assert {one.kind for one in findings} == {TOO_LONG}


@pytest.mark.parametrize(
    ("name", "options", "wrong"),
    [
        ("sumvsl_neox", PAIR, set()),
        (
            "sumvsl_neox_multiturn",
            {
                **DIALOGUE,
                "prompt_prefix": "<|user|>",
                "completion_prefix": "<|assistant|>",
                "eos_after_prompt": True,
            },
            {
                "normalized_chars_count",
                "normalized_bytes_count",
            },  # the original keeps those of the last turns alone
        ),
    ],
)
def test_rows_of_packed_dialogues(name, options, wrong, shared, inputs, neox):
    lines = lines_of(inputs / ("sum" if name == "sumvsl_neox" else "sum_mt"))
    sequences, _, counts = encode(PairRecipe(**neox, **options, joins_turns=True), lines)
    rows = np.stack([row_of(one, 256, 1) for one in packed(sequences, 256)])
    assert np.array_equal(rows, golden(shared, name))
    assert miscounted(counts, counted(shared, name)) == wrong


def test_pairs_with_a_missing_field_are_named_and_the_others_are_right(shared, inputs, neox):
    recipe = PairRecipe(**neox, **PAIR)
    lines = lines_of(inputs / "sum_missing")
    sequences, findings, _ = encode(recipe, lines)
    bad = {
        at
        for at, line in enumerate(lines)
        if not all(json.loads(line).get(key) for key in ("prompt", "completion"))
    }
    assert len(bad) == 2
    assert {one.row for one in findings if one.kind == UNUSABLE} == bad
    long = {one.row for one in findings if one.kind == TOO_LONG}
    alone = [encode(recipe, [line])[0] for at, line in enumerate(lines) if at not in bad | long]
    assert [one.tolist() for one in sequences] == [one.tolist() for [one] in alone]


def test_an_empty_side_is_named(inputs, neox):
    rows = pq.read_table(inputs / "sum_parquet/a.parquet").to_pylist()
    sequences, findings, counts = encode(PairRecipe(**neox, **PAIR), list(map(json.dumps, rows)))
    assert [(one.row, one.kind, one.what) for one in findings] == [(1, UNUSABLE, "no text in 'prompt'")]
    for words, row in zip(sequences, rows[::2], strict=True):
        assert text_of(neox["engine"], words) == f"{row['prompt']}{row['completion']}<|endoftext|>"
        assert text_of(neox["engine"], words[words >= 0]) == f"{row['completion']}<|endoftext|>"
    assert counts.documents == 2


def test_every_pair_of_a_dialogue_has_a_sequence(inputs, neox):
    lines = lines_of(inputs / "sum_mt")
    sequences, _, counts = encode(PairRecipe(**neox, **DIALOGUE), lines)
    texts = [message["content"] for line in lines for message in json.loads(line)["messages"]]
    pairs = [json.dumps({"prompt": a, "completion": b}) for a, b in zip(texts[::2], texts[1::2], strict=True)]
    alone, *_ = encode(PairRecipe(**neox, **PAIR), pairs)
    assert counts.documents == len(pairs) == 276
    assert [one.tolist() for one in sequences] == [one.tolist() for one in alone]


def test_a_separator_that_the_vocabulary_lacks(inputs, gpt2):
    engine, sep = with_token(gpt2["engine"], "<|sep|>")
    assert (sep, engine.vocab_size) == (50257, 50258)
    lines = lines_of(inputs / "sum")
    ours, *_ = encode(PairRecipe(**{**gpt2, "engine": engine}, **PAIR, sep_id=sep), lines)
    plain, *_ = encode(PairRecipe(**gpt2, **{**PAIR, "length": 255}), lines)
    assert len(ours) == len(plain)
    for words, others in zip(ours, plain, strict=True):
        (place,) = np.flatnonzero(words & ID == sep)
        assert words[place] < 0
        assert place == np.argmax(others >= 0)
        assert np.array_equal(np.delete(words, place), others)


def preferences(recipe, lines):
    """Rows of a recipe, and what was counted and found."""
    tokens, counts = recipe.encode(pa.array(lines, pa.large_string()))
    sizes = tokens.lengths.astype(np.int64)
    rows, row_counts = fill_preferences(
        tokens.ids, np.cumsum(sizes) - sizes, sizes, recipe.length, recipe.specials.pad_id
    )
    return rows, counts, row_counts, tokens.findings


@pytest.mark.parametrize("name", ["dpo_neox", "dpo_gpt2", "dpo_neox_msgs"])
def test_rows_of_preferences(name, shared, inputs, neox, gpt2):
    lines = lines_of(inputs / ("dpo_msgs" if name == "dpo_neox_msgs" else "dpo"))
    tokenizer = gpt2 if name == "dpo_gpt2" else neox
    recipe = PreferenceRecipe(**tokenizer, length=128, like_modelzoo=True)
    rows, counts, row_counts, findings = preferences(recipe, lines)
    assert np.array_equal(rows, golden(shared, name))
    assert not miscounted(counts, counted(shared, name))
    assert row_counts.loss_tokens == rows[:, [1, 4]].sum()
    assert not findings


@pytest.mark.parametrize("like", [False, True])
def test_truncated_preferences_keep_what_counts(like, inputs, neox):
    options = {**neox, "like_modelzoo": like, "bos_id": 2}
    lines = lines_of(inputs / "dpo")
    whole, *_ = encode(PreferenceRecipe(**options, length=2048), lines)
    short, findings, _ = encode(PreferenceRecipe(**options, length=48, max_prompt_length=16), lines)
    cut = {one.row for one in findings}
    assert {one.kind for one in findings} == {TRUNCATED}
    for record in range(len(lines)):
        pairs = list(zip(whole[2 * record :][:2], short[2 * record :][:2], strict=True))
        assert (record in cut) == any(len(full) > 48 for full, _ in pairs)
        for full, ours in pairs:
            prompt, answer = ours[ours < 0], ours[ours >= 0]
            given, said = full[full < 0], full[full >= 0]
            assert len(ours) <= 48
            assert (prompt[0] & ID, answer[-1]) == (2, 0)
            if record not in cut:
                assert np.array_equal(ours, full)
                continue
            assert prompt[1:].tolist() == given[1:][-15:].tolist()
            assert answer[:-1].tolist() == said[:-1][: 48 - len(prompt) - 1].tolist()
            assert answer.size > 1


@pytest.mark.parametrize("like", [False, True])
def test_preferences_without_a_prompt_of_their_own(like, inputs, neox):
    lines = lines_of(inputs / "dpo_noprompt")
    recipe = PreferenceRecipe(**neox, prompt_key=None, length=2048, like_modelzoo=like)
    sequences, findings, counts = encode(recipe, lines)
    assert (len(sequences), counts.documents, findings) == (2 * len(lines), len(lines), ())
    for number, words in enumerate(sequences):
        record = json.loads(lines[number // 2])
        dialogue = record["rejected" if number % 2 else "chosen"]
        prompt, _, answer = dialogue.removeprefix("user: ").partition(" assistant: ")
        text = f"[INST] {prompt} [/INST] {answer}<|endoftext|>"
        assert text_of(neox["engine"], words) == f"{'<|endoftext|>' * like}{text}"


def test_rows_no_longer_than_the_prompt_keep_answers(inputs, neox):
    """The original empties all of them."""
    recipe = PreferenceRecipe(**neox, length=32)
    rows, *_ = preferences(recipe, lines_of(inputs / "dpo"))
    for ids, mask, labels in rows.reshape(-1, 3, 32):
        assert mask.sum() > 1
        assert labels[np.flatnonzero(mask)[-1]] == 0
        assert np.array_equal(ids[1:][mask[:-1] == 1], labels[mask == 1])


def test_the_delimiter_belongs_to_the_prompt(inputs, neox):
    sequences, *_ = encode(PreferenceRecipe(**neox, length=2048), lines_of(inputs / "dpo"))
    record = json.loads(lines_of(inputs / "dpo")[0])
    chosen = sequences[0]
    assert text_of(neox["engine"], chosen[chosen >= 0]) == f" {record['chosen']}<|endoftext|>"
    assert text_of(neox["engine"], chosen[chosen < 0]) == f"[INST] {record['prompt']} [/INST]"
