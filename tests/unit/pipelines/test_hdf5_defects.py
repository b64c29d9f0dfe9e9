"""What create_hdf5_dataset.py of ModelZoo 2.2 does wrong, by the numbers of our list of its defects: the sane result of each.

A number is in the name of a test here, or in `ELSEWHERE` with the test that has it. Below: all modes give folders that ModelZoo's loaders take.
"""

import gzip
import io
import json
import re
import tarfile
from pathlib import Path

import numpy as np
import pytest
import zstandard
from tokenizers import Tokenizer

from dolma_dask.cli import main
from dolma_dask.outputs.hdf5.modes import MODES
from dolma_dask.testing.modelzoo import load_rows
from dolma_dask.testing.tokenizer import END_OF_TEXT, train_tokenizer

DEFECTS = {*range(1, 21), 22, 25}
"""Numbers of those that a tool like this one can have; others are of one interpreter, one workaround or other scripts."""

ELSEWHERE = {
    2: "tests/unit/verbs/test_hdf5.py::test_lost_files_need_their_own_shards_only",
    5: "tests/unit/pipelines/test_hdf5_options.py::test_a_file_of_options_yields_to_words",
    7: "tests/unit/verbs/test_hdf5.py::test_raw_files",
    14: "tests/unit/tokens/test_fim.py::test_rows_are_those_of_plain_python",
    17: "tests/unit/tokens/test_preferences.py::test_a_prompt_that_both_begin_with",
    18: "tests/unit/tokens/test_templates.py::test_what_templates_are_given",
}

ROOT = Path(__file__).parents[3]
FIM = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>")
SPECIAL = ("<|padding|>", *FIM)

TEXTS = ["one two three", "naïve café", "日本語 テキスト", "a " * 60, "the end", "x" * 30]

RECORDS = [
    {
        "text": text,
        "source": f"what of {number}?",
        "target": f"this is {text}",
        "messages": ["first?", f"yes {number}", "second?", f"no {number}"],
        "prompt": f"Say {number}",
        "chosen": f"well {number}",
        "rejected": "no",
    }
    for number, text in enumerate(TEXTS)
]
"""Records with what any mode reads."""

NEOX = ("--tokenizer_type", "NeoXTokenizer", "--encoder_file", "neox.json")
GPT2 = ("--tokenizer_type", "GPT2Tokenizer", "--encoder_file", "encoder.json", "--vocab_file", "vocab.bpe")
FIM_TOKENS = tuple(
    word
    for name, token in zip(("prefix", "middle", "suffix"), FIM, strict=True)
    for word in (f"--fim_{name}_tok", token)
)

OPTIONS = {
    "LMData": (),
    "LMData_VSL": (),
    "FIM": FIM_TOKENS,
    "Summarization": ("--prompt_key", "source", "--completion_key", "target"),
    "Summarization_VSL": ("--multi_turn_key", "messages"),
    "DPO": (),
}
"""What each mode needs to read `RECORDS`."""


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory) -> Path:
    """A folder with one tokenizer in both forms."""
    folder = tmp_path_factory.mktemp("tokenizers")
    whole = train_tokenizer([json.dumps(one) for one in RECORDS], folder / "neox.json", 320)
    whole.add_special_tokens(list(SPECIAL))
    whole.save(str(folder / "neox.json"))
    model = json.loads(whole.to_str())["model"]
    extended = model["vocab"] | {token: whole.token_to_id(token) for token in SPECIAL}
    (folder / "encoder.json").write_text(json.dumps(extended))
    merges = "\n".join(" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"])
    (folder / "vocab.bpe").write_text(f"#version: 0.2\n{merges}\n")
    return folder


@pytest.fixture
def tokenizer(tokenizers, tmp_path, monkeypatch) -> Tokenizer:
    """The tokenizer; the current folder has it too, and raw files."""
    for path in tokenizers.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "raw").mkdir()
    monkeypatch.chdir(tmp_path)
    write(RECORDS)
    return Tokenizer.from_file("neox.json")


def write(records: list[object], name: str = "raw/a.jsonl") -> None:
    Path(name).write_text("".join(json.dumps(one) + "\n" for one in records))


def call(mode: str, *words: str, to: str = "out", tokenizer: tuple[str, ...] = NEOX) -> int:
    """Run a mode over the folder `raw`; return the exit status."""
    own = ("--input_dir", "raw", "--output_dir", to, "--min_sequence_len", "2")
    own = own if mode != "DPO" else own[:4]
    last = ("--max_seq_length", "32") if "--max_seq_length" not in words else ()
    more = ("--overwrite", "--scheduler", "synchronous", "--display_pbar", "False")
    return main(["hdf5", mode, *own, *tokenizer, *OPTIONS[mode], *last, *more, *words])


def rows_of(mode: str, *words: str, to: str = "out", tokenizer: tuple[str, ...] = NEOX) -> np.ndarray:
    assert call(mode, *words, to=to, tokenizer=tokenizer) == 0
    return load_rows(Path(to), mode).rows


def predicted(tokenizer: Tokenizer, row: np.ndarray) -> str:
    return tokenizer.decode(row[2][row[1] == 1].tolist(), skip_special_tokens=False)


def test_every_defect_is_here_or_there():
    here = [
        int(number) for number in re.findall(r"^def test_(\d\d)_", Path(__file__).read_text(), re.MULTILINE)
    ]
    assert sorted([*here, *ELSEWHERE]) == sorted(DEFECTS)
    for place in ELSEWHERE.values():
        path, name = place.split("::")
        assert f"def {name}(" in (ROOT / path).read_text(), place


def test_01_an_absent_field_moves_no_other_record(tokenizer, capsys):
    write([RECORDS[0], {"source": "alone"}, {"source": "what?", "target": ""}, *RECORDS[1:3]])
    assert call("Summarization") == 1
    assert "a.jsonl, row 1: unusable record" in capsys.readouterr().out
    found = rows_of("Summarization", "--on_bad_record", "quarantine", "--max_bad_fraction", "0.5")
    assert [predicted(tokenizer, row) for row in found] == [
        f"{one['target']}{END_OF_TEXT}" for one in RECORDS[:3]
    ]
    kept = Path("out/_quarantine/hdf5/a.jsonl.jsonl").read_text().splitlines()
    assert len(kept) == 2


@pytest.mark.parametrize("mode", ["Summarization", "Summarization_VSL"])
def test_03_a_separator_stands_behind_the_prompt(mode, tokenizer):
    write([{"source": "what?", "target": "this", "messages": ["what?", "this"]}])
    (row,) = rows_of(mode, "--sep_token", "<|sep|>")
    sep = tokenizer.get_vocab_size()
    ids = [*tokenizer.encode("what?").ids, sep, *tokenizer.encode("this").ids]
    assert row[0][: len(ids)].tolist() == ids
    assert predicted(tokenizer, row) == f"this{END_OF_TEXT}"


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "DPO"])
def test_04_an_inverted_mask_is_inverted(mode, tokenizer):
    plain, inverted = rows_of(mode), rows_of(mode, "--inverted_mask", to="out2")
    assert np.array_equal(plain[:, 1], 1 - inverted[:, 1])
    assert np.array_equal(np.delete(plain, 1, 1), np.delete(inverted, 1, 1))


def test_06_a_long_document_is_one_document(tokenizer):
    write([{"text": "one two " * 10_000}])
    rows = rows_of("LMData", "--max_chunk_size", "64", "--max_seq_length", "2048")
    labels = rows[:, 2][rows[:, 1] == 1]
    assert np.flatnonzero(labels == 0).tolist() == [len(labels) - 1]


@pytest.mark.parametrize("mode", ["LMData", "LMData_VSL", "FIM"])
def test_08_texts_are_in_the_field_text(mode, tokenizer):
    assert np.array_equal(rows_of(mode), rows_of(mode, "--jsonl_key", "text", to="out2"))


def test_09_every_turn_of_a_dialogue_is_a_row(tokenizer):
    found = [
        predicted(tokenizer, row)
        for row in rows_of(
            "Summarization",
            "--prompt_key",
            "None",
            "--completion_key",
            "None",
            "--multi_turn_key",
            "messages",
        )
    ]
    answers = [text for one in RECORDS for text in one["messages"][1::2]]
    assert found == [f"{answer}{END_OF_TEXT}" for answer in answers]


@pytest.mark.parametrize("mode", MODES)
def test_10_a_file_that_cannot_be_read_fails_the_run(mode, tokenizer, capsys):
    data = gzip.compress(json.dumps(RECORDS[0]).encode() * 99)
    Path("raw/b.json.gz").write_bytes(data[: len(data) // 2])
    assert call(mode) == 1
    assert "b.json.gz" in capsys.readouterr().out
    assert not list(Path("out").glob("*.h5"))
    assert not Path("out/data_params.json").exists()


def test_11_a_little_text_is_a_row(tokenizer):
    write([{"text": "one two"}])
    (row,) = rows_of("LMData")
    assert predicted(tokenizer, row) == tokenizer.decode(tokenizer.encode("one two").ids[1:]) + END_OF_TEXT


@pytest.mark.parametrize("kind", [NEOX, GPT2])
def test_12_fim_with_any_tokenizer(kind, tokenizer):
    rows = rows_of("FIM", "--fim_rate", "1", "--max_seq_length", "64", tokenizer=kind)
    for token in FIM:
        assert (rows[:, 0] == tokenizer.token_to_id(token)).any()


def test_13_fim_trains_on_no_padding(tokenizer):
    rows = rows_of("FIM", "--pack_sequences", "False", "--max_seq_length", "64")
    padding = tokenizer.token_to_id("<|padding|>")
    assert (rows[:, 2] == padding).any()
    assert not (rows[:, 1][rows[:, 2] == padding]).any()


def test_15_chances_follow_from_the_seed_alone(tokenizer):
    words = ("--short_seq_prob", "0.5", "--max_seq_length", "8")
    first, again, other = (
        rows_of("FIM", *words, "--seed", seed, "--files_per_record", size, to=f"out{size}{seed}")
        for seed, size in (("1", "99"), ("1", "3"), ("2", "99"))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_16_answers_survive_rows_shorter_than_a_prompt(tokenizer):
    write([{"prompt": "long " * 90, "chosen": "good " * 20, "rejected": "bad"}])
    (row,) = rows_of("DPO", "--max_seq_length", "12")
    for ids, mask, labels in row.reshape(2, 3, 12):
        answer = labels[mask == 1]
        assert len(answer) > 1
        assert answer[-1] == 0
        assert (ids != 0)[: mask.argmax() + 1].all()
    assert predicted(tokenizer, row[3:]).lstrip() == f"bad{END_OF_TEXT}"


def test_19_special_tokens_of_a_tokenizer_stay(tokenizer):
    Path("folder").mkdir()
    Path("folder/tokenizer.json").write_text(Path("neox.json").read_text())
    config = {"eos_token": END_OF_TEXT, "pad_token": "<fim_suffix>", "sep_token": "<fim_middle>"}
    Path("folder/tokenizer_config.json").write_text(json.dumps(config))
    kind = ("--tokenizer_type", "HuggingFaceTokenizer", "--huggingface_tokenizer", "folder")
    rows = rows_of("DPO", tokenizer=kind)
    assert rows[0, 0, -1] == tokenizer.token_to_id("<fim_suffix>")


def test_20_counts_of_preferences_are_those_of_their_tokens(tokenizer):
    rows = rows_of("DPO", "--max_seq_length", "64")
    stats = json.loads(Path("out/data_params.json").read_text())["post-process"]
    padding = tokenizer.token_to_id("<|padding|>")
    filled = int((rows[:, [0, 3]] != padding).sum())
    assert stats["loss_valid_tokens"] == rows[:, [1, 4]].sum()
    assert stats["non_pad_tokens"] == filled == stats["num_tokens"] - stats["num_pad_tokens"]
    for row, record in zip(rows, RECORDS, strict=True):
        assert predicted(tokenizer, row).lstrip() == f"{record['chosen']}{END_OF_TEXT}", (
            "without the mark before it"
        )
        assert row[0, 0] != 0, "the end of a document begins none"


def test_22_a_run_goes_on_within_archives(tokenizer):
    Path("raw/a.jsonl").unlink()
    with tarfile.open("raw/a.jsonl.zst.tar", "w") as archive:
        for number in range(2):
            lines = "".join(json.dumps(one) + "\n" for one in RECORDS[3 * number :][:3])
            data = zstandard.compress(lines.encode())
            info = tarfile.TarInfo(f"{number}.jsonl.zst")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    whole = rows_of("LMData", "--files_per_record", "2")
    write(RECORDS, "all.jsonl")
    lost = sorted(Path("out").glob("*.h5"))[1]
    lost.unlink()
    words = ("--files_per_record", "2", "--overwrite", "False")
    assert np.array_equal(rows_of("LMData", *words), whole)
    Path("raw/a.jsonl.zst.tar").unlink()
    write(RECORDS)
    assert np.array_equal(rows_of("LMData", to="out2"), whole)


@pytest.mark.parametrize("shuffle", ["False", "True"])
@pytest.mark.parametrize("mode", MODES)
def test_25_every_file_says_how_many_rows_it_has(mode, shuffle, tokenizer):
    """And is one that loaders take."""
    assert call(mode, "--files_per_record", "2", "--shuffle", shuffle, "--max_seq_length", "24") == 0
    loaded = load_rows(Path("out"), mode)
    assert len(loaded.sizes) > 1
    assert max(loaded.sizes) == 2
    whole = rows_of(mode, "--max_seq_length", "24", to="out2")
    rows = {row.tobytes() for row in loaded.rows}
    assert rows == {row.tobytes() for row in whole}
    assert shuffle == "True" or np.array_equal(loaded.rows, whole)


@pytest.mark.parametrize(
    ("mode", "name"), [("LMData", "autoregressive_lm"), ("Summarization", "summarization")]
)
def test_files_of_options_in_the_form_of_the_examples(mode, name, tokenizer, capsys):
    path = Path(__file__).parent / f"params/{name}_preprocessing.yaml"
    assert (
        main(["hdf5", mode, "--params", str(path), "--display_pbar", "False", "--scheduler", "synchronous"])
        == 0
    )
    found = load_rows(Path("data_dir"), mode)
    assert len(found.rows)
    assert found.params["setup"]["processes"] == 1
    assert found.params["dataset"]["use_ftfy"] is True
    said = capsys.readouterr().out
    assert "output_name has no effect" in said


def test_statistics_are_those_of_the_documentation(tokenizer):
    """Every key of both sections of data_params.json."""
    call("LMData")
    params = json.loads(Path("out/data_params.json").read_text())
    assert set(params["h5_dataset_stats"]) == {
        "detokenized_bytes",
        "detokenized_chars",
        "loss_valid_tokens",
        "non_pad_tokens",
        "num_sequences",
        "num_tokens",
    }
    assert set(params["post-process"]) == {
        "average_bytes_per_sequence",
        "average_chars_per_sequence",
        "discarded_files",
        "eos_id",
        "loss_valid_tokens",
        "n_examples",
        "non_pad_tokens",
        "normalized_bytes_count",
        "normalized_chars_count",
        "num_masked_tokens",
        "num_pad_tokens",
        "num_tokens",
        "pad_id",
        "processed_files",
        "raw_bytes_count",
        "raw_chars_count",
        "successful_files",
        "vocab_size",
    }
