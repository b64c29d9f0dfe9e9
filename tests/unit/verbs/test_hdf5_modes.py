"""Modes of hdf5: rows do not depend on shards, files or workers; a shuffle keeps every row; options and records that a mode cannot use."""

import gzip
import inspect
import json
from collections import Counter
from dataclasses import replace as with_fields
from pathlib import Path

import h5py
import numpy as np
import pytest
from msgspec.structs import replace
from tokenizers import Tokenizer

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError
from dolma_dask.options.base import fields_of
from dolma_dask.outputs.hdf5.modes import MODES
from dolma_dask.outputs.hdf5.options import RowOptions
from dolma_dask.outputs.hdf5.staging import StagingOutput
from dolma_dask.placement import choose
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.engine import load_tokenizer

HERE = {"scheduler": "synchronous", "progress": False}
FIM = {"fim_prefix_tok": "<|a|>", "fim_middle_tok": "<|b|>", "fim_suffix_tok": "<|c|>"}
PAIRS = {"prompt_key": "metadata.q", "completion_key": "metadata.a"}
OPTIONS = {
    "LMData": {},
    "LMData_VSL": {},
    "FIM": FIM,
    "Summarization": PAIRS,
    "Summarization_VSL": PAIRS,
    "DPO": {"prompt_key": "metadata.q", "chosen_key": "metadata.a", "rejected_key": "metadata.b"},
}


def text_of(row: int) -> str:
    return " ".join(f"word{row * place % 17}" for place in range(1, 4 + row * 7 % 60))


def record(row: int) -> dict[str, object]:
    answers = {"q": text_of(row + 3), "a": text_of(row), "b": text_of(row + 1)}
    return {"id": str(row), "source": "s", "text": text_of(row), "metadata": answers}


def write(root: Path, shards: list[list[dict[str, object]]]) -> str:
    (root / "documents").mkdir(parents=True)
    for number, rows in enumerate(shards):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (root / f"documents/{number:02d}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return str(root)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer([text_of(row) for row in range(60)], path, 400)
    with_more = Tokenizer.from_file(str(path))
    with_more.add_special_tokens(list(FIM.values()))
    with_more.save(str(path))
    return str(path)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """The same documents in one shard and in many."""
    folder = tmp_path_factory.mktemp("datasets")
    rows = [record(row) for row in range(150)]
    cuts = [rows[:1], rows[1:1], rows[1:70], rows[70:75], rows[75:]]
    return write(folder / "one", [rows]), write(folder / "many", cuts)


@pytest.mark.parametrize("compat", [None, "modelzoo-2.2"])
def test_rows_of_fim_that_files_change_are_said_to_be_such(datasets, tokenizer, tmp_path, compat):
    """ModelZoo draws from one generator, row after row: nobody knows what it has drawn before a file."""
    options = {"mode": "FIM", "tokenizer": tokenizer, "max_seq_length": 32, "compat": compat, **FIM, **HERE}
    made = []
    for rows in (10**6, 9):
        to = tmp_path / str(rows)
        summary = dk.hdf5(datasets[0], to, **options, max_rows_per_file=rows, use_ftfy=False)
        made.append(rows_of(to))
    assert np.array_equal(*made) == (compat is None)
    said = [note for note in summary.notes if "max_rows_per_file and shuffle change the rows" in note]
    assert len(said) == (compat is not None)


def rows_of(folder: Path) -> np.ndarray:
    arrays = []
    for path in sorted(folder.glob("*.h5")):
        with h5py.File(path) as file:
            arrays.append(file["data"][:])
    return np.concatenate(arrays)


def options_of(mode: str) -> dict[str, object]:
    """Return options that fit the records."""
    length = 256 if mode in ("Summarization", "Summarization_VSL", "DPO") else 64
    least = {} if mode == "DPO" else {"min_sequence_len": 2}
    return {"max_seq_length": length, **least, **OPTIONS[mode]}


def pack(dataset: str, to: Path, tokenizer: str, mode: str, **options):
    given = {**options_of(mode), **HERE, **options}
    return dk.hdf5(dataset, str(to), tokenizer=tokenizer, mode=mode, **given)


def test_every_mode_is_tried():
    assert OPTIONS.keys() == MODES.keys()


@pytest.mark.parametrize("mode", OPTIONS)
def test_shards_files_and_windows_do_not_matter(mode, datasets, tokenizer, tmp_path, monkeypatch):
    one, many = datasets
    monkeypatch.setattr("dolma_dask.tokens.packing.MAX_SEGMENTS", 20)
    pack(one, tmp_path / "one", tokenizer, mode)
    pack(many, tmp_path / "many", tokenizer, mode, max_rows_per_file=3)
    assert len(list((tmp_path / "many").glob("*.h5"))) > 3
    assert np.array_equal(rows_of(tmp_path / "one"), rows_of(tmp_path / "many"))
    whole, cut = (json.loads((tmp_path / name / "data_params.json").read_text()) for name in ("one", "many"))
    assert whole["post-process"] == cut["post-process"]
    assert whole["features"] == cut["features"]
    assert rows_of(tmp_path / "one").shape[1] == len(whole["features"])


@pytest.mark.parametrize("mode", OPTIONS)
def test_a_shuffle_keeps_every_row(mode, datasets, tokenizer, tmp_path):
    one, many = datasets
    pack(one, tmp_path / "plain", tokenizer, mode)
    pack(one, tmp_path / "a", tokenizer, mode, shuffle=True)
    pack(many, tmp_path / "b", tokenizer, mode, shuffle=True, max_rows_per_file=4)
    pack(one, tmp_path / "c", tokenizer, mode, shuffle=True, shuffle_seed=1)
    plain, first, again, other = (
        [row.tobytes() for row in rows_of(tmp_path / name)] for name in ("plain", "a", "b", "c")
    )
    assert Counter(first) == Counter(plain) == Counter(other)
    assert first == again
    assert len({tuple(plain), tuple(first), tuple(other)}) == 3
    counts = [
        json.loads((tmp_path / name / "data_params.json").read_text())["post-process"]
        for name in ("plain", "b")
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("packing", ["best_fit", "next_fit", "spfhp", "lpfhp", "modelzoo"])
def test_packing_loses_no_token(packing, datasets, tokenizer, tmp_path):
    """Each document stands in one row, whole, in its own span and with its own positions; long ones in several, which overlap by a token."""
    summary = pack(datasets[1], tmp_path, tokenizer, "LMData_VSL", packing=packing)
    rows = rows_of(tmp_path)
    found = Counter()
    for ids, mask, labels, spans, positions in rows:
        starts = np.flatnonzero((positions == 0) & (mask == 1))
        for start in starts.tolist():
            size = int(spans[start]) + 1
            place = slice(start, start + size)
            assert positions[place].tolist() == list(range(size))
            assert spans[place].tolist() == list(range(size))[::-1]
            assert labels[place][:-1].tolist() == ids[place][1:].tolist()
            found[(*ids[place].tolist(), int(labels[place][-1]))] += 1
        assert sum(spans[starts] + 1) == mask.sum()
    library = Tokenizer.from_file(tokenizer)
    eos = library.token_to_id("<|endoftext|>")
    expected = Counter()
    for row in range(150):
        tokens = [*library.encode(text_of(row), add_special_tokens=False).ids, eos]
        expected.update(tuple(tokens[at : at + 65]) for at in range(0, len(tokens) - 1, 64))
    assert found == expected
    assert summary.counts["rows"] == len(rows)


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [
        (
            "LMData",
            {"packing": "best_fit"},
            "packing is no option of mode LMData.*LMData_VSL, Summarization_VSL",
        ),
        ("LMData_VSL", {"tail": "drop"}, "tail is no option of mode LMData_VSL.*LMData, FIM"),
        ("DPO", {"inverted_mask": True}, "inverted_mask is no option of mode DPO"),
        ("Summarization", {"short_seq_prob": 0.1}, "short_seq_prob is no option of mode Summarization"),
        ("FIM", {"fim_rate": 1.5}, "fim_rate"),
        ("LMData_VSL", {"short_seq_prob": 1.5}, "short_seq_prob=1.5; expected a number from 0 to 1"),
        ("LMData_VSL", {"short_seq_prob": 0.5, "max_seq_length": 2}, "expected rows of more than 2 tokens"),
        ("LMData_VSL", {"min_sequence_len": -1}, "min_sequence_len=-1; expected a whole number from 0"),
        ("LMData_VSL", {"max_sequences_per_row": 2**70}, "max_sequences_per_row=.*from 1 to"),
        ("LMData", {"max_seq_length": 10**11}, "max_seq_length=.*from 1 to 1,073,741,824"),
        ("LMData", {"short_seq_prob": -0.1}, "short_seq_prob=-0.1; expected a number from 0 to 1"),
        ("Summarization", {"max_seq_length": 0}, "max_seq_length=0; expected a whole number from 1"),
        ("LMData", {"chunk_len_to_split": 0}, "chunk_len_to_split=0; expected"),
        ("Summarization", {"seed": -1}, "seed=-1; expected a whole number from 0"),
        ("DPO", {"max_prompt_length": 0}, "max_prompt_length=0; expected a whole number from 1"),
        ("DPO", {"max_seq_length": 3}, "max_seq_length=3; expected"),
        ("Summarization_VSL", {"sep_token": ""}, "sep_token='' is no token"),
        ("FIM", {"fim_prefix_tok": "<nothing>"}, "is no token of"),
        ("DPO", {"eos": "none"}, "ends an answer"),
        ("Summarization", {"prompt_key": None}, "expected the fields of both"),
        (
            "LMData_VSL",
            {"packing": "modelzoo", "max_sequences_per_row": 2},
            "packing='modelzoo' with max_sequences_per_row=2; expected no limit",
        ),
        (
            "Summarization_VSL",
            {"compat": "modelzoo-2.2", "max_sequences_per_row": 2},
            "compat='modelzoo-2.2', so packing='modelzoo' with max_sequences_per_row=2",
        ),
        ("FIM", {"fim_middle_tok": "<|a|>"}, "expected four different tokens"),
        ("FIM", {"fim_suffix_tok": "<|endoftext|>"}, "documents end with '<|endoftext|>'; expected four"),
        ("DPO", {"chosen_key": "metadata.b"}, "chosen_key and rejected_key are both 'metadata.b'; expected"),
        ("DPO", {"prompt_key": "metadata.a"}, "prompt_key and chosen_key are both 'metadata.a'"),
        (
            "DPO",
            {"chosen_key": "rejected", "rejected_key": None},
            "chosen_key and rejected_key are both 'rejected'",
        ),
        ("Summarization", {"prompt_key": "metadata.a"}, "prompt_key and completion_key are both"),
        (
            "Summarization_VSL",
            {"multi_turn_key": "turns", "prompt_key": None},
            "multi_turn_key='turns' and completion_key were given; expected the field of dialogues alone",
        ),
    ],
)
def test_options_that_a_mode_does_not_have(mode, options, message, datasets, tokenizer, tmp_path):
    with pytest.raises(UsageError, match=message):
        pack(datasets[0], tmp_path, tokenizer, mode, **options)
    assert not list(tmp_path.glob("*.h5"))


@pytest.mark.parametrize("mode", MODES)
def test_a_class_of_options_is_a_call(mode, datasets, tokenizer, tmp_path):
    """A public class per mode, with its signature and docstring, which makes the same rows as the mode and its options by name."""
    kind = next(public for name in dk.__all__ if getattr(public := getattr(dk, name), "name", None) == mode)
    options = kind(tokenizer=tokenizer, seed=3, **options_of(mode))
    summary = dk.hdf5(datasets[0], str(tmp_path / "rows"), **HERE, **options)
    pack(datasets[0], tmp_path / "named", tokenizer, mode, seed=3)
    assert np.array_equal(rows_of(tmp_path / "rows"), rows_of(tmp_path / "named"))
    assert summary.counts["rows"]
    names = [field.name for field in fields_of(kind)]
    assert list(inspect.signature(kind).parameters) == names
    assert all(f"\n{name} : " in str(kind.__doc__) for name in names)
    with pytest.raises(
        UsageError, match=f"{kind.__name__}.* takes no argument 'max_seq_lenth'; did you mean"
    ):
        kind(tokenizer=tokenizer, max_seq_lenth=64)
    with pytest.raises(UsageError, match="max_seq_length=0; expected a whole number from 1"):
        kind(tokenizer=tokenizer, max_seq_length=0)


@pytest.mark.parametrize("kind", [dk.SummarizationOptions, dk.SummarizationVslOptions, dk.DpoOptions])
def test_a_class_of_options_refuses_a_field_for_two_things(kind):
    second = next(key for key in ("completion_key", "chosen_key") if hasattr(kind, key))
    with pytest.raises(UsageError, match=f"prompt_key and {second} are both 'q'"):
        kind(tokenizer="tokenizer.json", prompt_key="q", **{second: "q"})


def test_no_row_at_all(tokenizer, tmp_path):
    """Too few tokens are the reason where all documents are one stream, and else what the other notes say."""
    dataset = write(tmp_path / "v0", [[record(row) for row in range(50, 53)]])
    empty = write(tmp_path / "empty", [[{**record(0), "text": ""}]])
    (note,) = no_row(pack(empty, tmp_path / "stream", tokenizer, "LMData"))
    assert note == "no row was written: there are too few tokens for one"
    for mode in ("Summarization", "Summarization_VSL"):
        summary = pack(dataset, tmp_path / mode, tokenizer, mode, max_seq_length=8)
        assert no_row(summary) == ["no row was written"]
        assert any("3 documents have more tokens than a row" in note for note in summary.notes)
    nothing = write(tmp_path / "nothing", [[]])
    assert no_row(pack(nothing, tmp_path / "none", tokenizer, "LMData")) == ["no row was written"]


def no_row(summary) -> list[str]:
    return [note for note in summary.notes if note.startswith("no row was written")]


def test_the_template_of_dialogues_is_told(datasets, tokenizer, tmp_path):
    """In a note, and among the parameters by its name: no path."""
    inline = "{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}"
    (tmp_path / "chat.jinja").write_text(inline)
    (tmp_path / "own").mkdir()
    own = str(tmp_path / "own/tokenizer.json")
    Path(own).write_text(Path(tokenizer).read_text())
    (tmp_path / "own/chat_template.jinja").write_text(inline)
    calls = [
        (tokenizer, None, "the template [INST] [/INST]"),
        (tokenizer, str(tmp_path / "chat.jinja"), "the template in chat.jinja"),
        (tokenizer, inline, "chat_template"),
        (own, None, "the template in chat_template.jinja"),
    ]
    made = []
    for number, (path, given, name) in enumerate(calls):
        out = tmp_path / str(number)
        summary = pack(datasets[0], out, path, "DPO", chat_template=given)
        assert f"dialogues are written by {name}" in summary.notes
        params = json.loads((out / "data_params.json").read_text())
        assert params["dataset"]["chat_template"] == (inline if given == inline else name)
        assert pack(datasets[0], out, path, "DPO", chat_template=given).done == 0
        made.append(rows_of(out))
    assert all(np.array_equal(made[1], rows) for rows in made[2:])
    assert not np.array_equal(made[0], made[1])


@pytest.mark.parametrize("mode", ["Summarization", "Summarization_VSL", "DPO"])
def test_records_that_cannot_be_used(mode, tokenizer, tmp_path):
    """They fail the run, or are set aside and listed; the others are as without them."""
    rows = [record(row) for row in range(20)]
    bad = [
        {**record(90), "metadata": {"q": "x"}},
        {**record(91), "metadata": {**record(91)["metadata"], "a": ""}},
    ]
    good = write(tmp_path / "good", [rows])
    mixed = write(tmp_path / "mixed", [[*rows[:7], bad[0], *rows[7:], bad[1]]])
    with pytest.raises(
        StageError,
        match=r"row 7: unusable record; expected a text in each field.*no field 'metadata.a'; 'metadata' has 'q'",
    ):
        pack(mixed, tmp_path / "failed", tokenizer, mode)
    summary = pack(
        mixed, tmp_path / "kept", tokenizer, mode, on_bad_record="quarantine", max_bad_fraction=0.5
    )
    pack(good, tmp_path / "plain", tokenizer, mode)
    assert np.array_equal(rows_of(tmp_path / "kept"), rows_of(tmp_path / "plain"))
    assert summary.counts["bad_records"] == 2
    quarantined = [
        json.loads(line)
        for path in (tmp_path / "kept/_quarantine").rglob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert [(one["row"], one["reason"]) for one in quarantined] == [
        (7, "unusable_record"),
        (21, "unusable_record"),
    ]
    skipped = pack(mixed, tmp_path / "like", tokenizer, mode, compat="modelzoo-2.2", use_ftfy=False)
    assert skipped.exit_status == 0
    assert any("2 documents lack a field" in note for note in skipped.notes), skipped.notes


@pytest.mark.parametrize(
    "name, place", [("LMData", "threads"), ("Summarization", "processes"), ("DPO", "processes")]
)
def test_records_that_python_reads_go_to_processes_sooner(name, place, tokenizer):
    mode = RowOptions(mode=name, tokenizer=tokenizer, **OPTIONS[name]).build(load_tokenizer(tokenizer))
    recipe = replace(mode.recipe, engine=with_fields(mode.engine, fast="1"))
    cost = StagingOutput("out", "staging", replace(mode, recipe=recipe)).cost
    assert choose(cost, [8_000_000] * 16, 2) == place
