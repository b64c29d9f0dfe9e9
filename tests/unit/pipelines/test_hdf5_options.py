"""The words of create_hdf5_dataset.py: truth values, YAML, what is refused and what does nothing."""

import json
from pathlib import Path

import h5py
import pytest

from dolma_dask.errors import UsageError
from dolma_dask.pipelines.hdf5_options import create_hdf5_dataset, is_mode
from dolma_dask.testing.tokenizer import train_tokenizer

TEXTS = ["one two three", "naïve café", "日本語 テキスト", "a " * 60]


@pytest.fixture
def world(tmp_path, monkeypatch) -> Path:
    """The current folder: raw texts and a tokenizer in either form."""
    whole = train_tokenizer(TEXTS, tmp_path / "neox.json", 300)
    model = json.loads(whole.to_str())["model"]
    (tmp_path / "encoder.json").write_text(json.dumps(model["vocab"]))
    merges = "\n".join(" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"])
    (tmp_path / "vocab.bpe").write_text(f"#version: 0.2\n{merges}\n")
    (tmp_path / "raw").mkdir()
    lines = [json.dumps({"text": text, "body": text[::-1]}) for text in TEXTS]
    (tmp_path / "raw/a.jsonl").write_text("\n".join(lines) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


NEOX = ("--tokenizer_type", "NeoXTokenizer", "--encoder_file", "neox.json")
GPT2 = ("--tokenizer_type", "GPT2Tokenizer", "--encoder_file", "encoder.json", "--vocab_file", "vocab.bpe")
QUIET = ("--scheduler", "synchronous", "--display_pbar", "False")


def run(*words: str) -> dict:
    """Return what a run says of itself; raw texts are given unless a file of options is."""
    raw = () if "--params" in words else ("--input_dir", "raw")
    create_hdf5_dataset(["LMData", *raw, *words, "--overwrite", *QUIET])
    return json.loads(Path("data_dir/data_params.json").read_text())


def test_modes_are_told_from_datasets():
    assert is_mode("LMData")
    assert is_mode("DPO")
    assert not is_mode("corpus/wiki")
    for nearly, mode in (("lmdata", "LMData"), ("LMDataVSL", "LMData_VSL"), ("dpo", "DPO")):
        with pytest.raises(UsageError, match=f"did you mean '{mode}'"):
            is_mode(nearly)


def test_a_folder_that_is_called_as_a_mode(tmp_path, monkeypatch):
    (tmp_path / "lmdata").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not is_mode("lmdata")


@pytest.mark.slow
def test_words(world):
    words = ("--max_seq_length=9", "--use_ftfy", "--pack_sequences", "False", "--min-sequence-len", "3")
    params = run(*NEOX, *words)
    assert params["dataset"]["use_ftfy"] is True
    assert params["dataset"]["pack_sequences"] is False
    assert params["dataset"]["min_sequence_len"] == 3
    assert params["processing"]["max_seq_length"] == 9
    with h5py.File("data_dir/part-000000-00000.h5") as file:
        assert file["data"].shape[1:] == (3, 9)


@pytest.mark.slow
def test_defaults_are_those_of_the_documentation_or_of_the_release(world):
    found = run(*NEOX)
    assert (found["dataset"]["use_ftfy"], found["dataset"]["min_sequence_len"]) == (False, 10)
    found = run(*NEOX, "--compat", "modelzoo-2.2")
    assert (found["dataset"]["use_ftfy"], found["dataset"]["min_sequence_len"]) == (True, 6)
    found = run(*NEOX, "--compat", "modelzoo-2.2", "--use_ftfy", "False", "--ftfy_normalizer", "None")
    assert (found["dataset"]["use_ftfy"], found["dataset"]["ftfy_normalizer"]) == (False, None)


def test_a_file_of_options_yields_to_words(world):
    Path("params.yaml").write_text(
        "setup:\n  input_dir: raw\n  output_dir: data_dir\n  processes: 1\n"
        "processing:\n  tokenizer_type: NeoXTokenizer\n  encoder_file: neox.json\n  max_seq_length: 12\n  short_seq_prob: 0.5\n"
        "  auth_token: None\n  write_in_batch: True\n"
        "dataset:\n  jsonl_key: body\n  inverted_mask: true\n  min_sequence_len: 4\n"
    )
    found = run("--params", "params.yaml", "--max_seq_length", "9", "--inverted_mask", "False")
    assert found["setup"]["jsonl_key"] == "body"
    assert found["processing"]["max_seq_length"] == 9
    assert found["processing"]["short_seq_prob"] == 0.5, "a default of the command line does not count"
    assert found["dataset"]["inverted_mask"] is False
    assert found["dataset"]["min_sequence_len"] == 4
    Path("params.yaml").write_text(
        "processing:\n  max_seq_len: 9\n  seed: [1]\ndataset:\n  use_ftfy: maybe\n"
    )
    with pytest.raises(UsageError) as caught:
        run("--params", "params.yaml")
    assert "line 2" in str(caught.value)
    assert "max_seq_length" in str(caught.value)
    assert "seed: a list; expected a whole number" in str(caught.value)
    assert "true or false" in str(caught.value)


@pytest.mark.slow
def test_gpt2_pads_with_the_end_of_a_document(world):
    found = run(*GPT2, "--pad_id", "5")["post-process"]
    assert (found["eos_id"], found["pad_id"]) == (0, 5)
    found = run(*GPT2, "--pad_id", "5", "--compat", "modelzoo-2.2")["post-process"]
    assert (found["eos_id"], found["pad_id"]) == (0, 0)
    found = run(*NEOX, "--eos_id", "7", "--compat", "modelzoo-2.2")["post-process"]
    assert (found["eos_id"], found["pad_id"]) == (7, 7)


def test_huggingface_tokenizers_are_folders_or_models(world, monkeypatch):
    Path("folder").mkdir()
    Path("folder/tokenizer.json").write_text(Path("neox.json").read_text())
    Path("folder/tokenizer_config.json").write_text('{"eos_token": "a", "pad_token": "b"}')
    words = ("--tokenizer_type", "HuggingFaceTokenizer", "--huggingface_tokenizer")
    found = run(*words, "folder")["post-process"]
    assert found["eos_id"] != found["pad_id"] != 0
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=r"tiiuae/falcon-7b is no file or folder here.*HF_HUB_OFFLINE asks"):
        run(*words, "tiiuae/falcon-7b")


def test_a_remainder_that_is_not_wanted_is_dropped(world):
    rows = {
        words: run(*NEOX, *words)["post-process"]["n_examples"]
        for words in ((), ("--write_remainder", "True"))
    }
    assert len(set(rows.values())) == 1
    for words in (("--write_remainder", "False"), ("--tail", "drop")):
        assert run(*NEOX, *words)["post-process"]["n_examples"] == rows[()] - 1
    assert run(*NEOX, "--write_remainder", "False", "--tail", "pad")["post-process"]["n_examples"] == rows[()]


def test_options_without_effect_are_named(world):
    words = ("--max_chunk_size", "64", "--shuffle_seed", "3", "--resume_from_checkpoint", "False")
    summary = create_hdf5_dataset(["LMData", "--input_dir", "raw", *NEOX, *words, *QUIET])
    assert [note.split(" ")[0] for note in summary.notes] == [
        "max_chunk_size",
        "shuffle_seed",
        "resume_from_checkpoint",
    ]


def test_secrets_are_not_written(world):
    summary = create_hdf5_dataset(
        ["LMData", "--input_dir", "raw", *NEOX, "--auth_token", "hf_secret", "--output_name", "x", *QUIET]
    )
    assert [note.split(" ")[0] for note in summary.notes] == ["output_name", "auth_token"]
    for path in Path("data_dir").rglob("*"):
        assert path.is_dir() or b"hf_secret" not in path.read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no mode"),
        (["LMDat"], "unknown"),
        (["MLM"], "unknown"),
        (["LMData", "--max_seq_len", "9"], "'max_seq_length'"),
        (["LMData", "raw"], "belongs to no option"),
        (["LMData", "--max_seq_length"], "has no value"),
        (["LMData", "--max_seq_length", "nine"], "a whole number"),
        (["LMData", "--use_ftfy", "maybe"], "true or false"),
        (["LMData", *NEOX], "input_dir"),
        (["LMData", "--input_dir", "raw"], "tokenizer_type"),
        (["LMData", "--input_dir", "raw", "--tokenizer_type", "NeoXTokenizer"], "encoder_file is missing"),
        (["LMData", "--input_dir", "raw", *NEOX, "--shuffle", "True"], "shuffle"),
        (["LMData", "--input_dir", "raw", *NEOX, "--input_ids_dtype", "int16"], "int32"),
        (["LMData", "--input_dir", "raw", *NEOX, "--compat", "1"], "modelzoo-2.2"),
        (["LMData", "--input_dir", "nothing", *NEOX], "nothing"),
    ],
)
def test_wrong_words(world, words, message):
    with pytest.raises(UsageError, match=message):
        create_hdf5_dataset(words)
    assert not Path("data_dir").exists()


def test_shuffle_false_is_false(world):
    assert run(*NEOX, "--shuffle", "False")["post-process"]["n_examples"] == 1
