"""The words of create_hdf5_dataset.py: truth values, YAML, what is refused and what does nothing."""

import json
from pathlib import Path

import h5py
import pytest

from dolma_dask.cli import main
from dolma_dask.errors import UsageError
from dolma_dask.options.base import fields_of
from dolma_dask.outputs.hdf5.job import Hdf5Summary
from dolma_dask.outputs.hdf5.modes import MODES
from dolma_dask.outputs.hdf5.options import RowOptions, is_mode
from dolma_dask.outputs.hdf5.raw import RawTexts
from dolma_dask.pipelines.hdf5_options import create_hdf5_dataset
from dolma_dask.pipelines.hdf5_script import modes_with
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.verbs.hdf5.verb import hdf5

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


def make(mode: str, *words: str) -> Hdf5Summary:
    """Run a mode; raw texts are given unless a file of options is."""
    raw = () if {"--params", "--metadata_files"} & set(words) else ("--input_dir", "raw")
    return create_hdf5_dataset([mode, *raw, *words, "--overwrite", *QUIET])


def run(*words: str) -> dict:
    """Return what a run of LMData says of itself."""
    make("LMData", *words)
    return params()


def params() -> dict:
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
    idle = {
        "max_chunk_size": "64",
        "shuffle_seed": "3",
        "resume_from_checkpoint": "False",
        "write_in_batch": "True",
        "output_name": "x",
        "dataset_processor": "LMDataPreprocessor",
        "chunk_len_to_split": "9",
    }
    words = [word for name, value in idle.items() for word in (f"--{name}", value)]
    assert {note.split(" ")[0] for note in make("LMData", *NEOX, *words).notes} == set(idle)


def test_types_of_rows_are_refused_or_named(world):
    for name in ("input_ids_dtype", "input_mask_dtype", "position_ids_dtype", "seq_lengths_dtype"):
        assert not make("LMData", *NEOX, f"--{name}", "int32").notes
        with pytest.raises(UsageError, match=f"{name}='int16'; expected int32, in which all rows"):
            make("LMData", *NEOX, f"--{name}", "int16")
        (note,) = make("LMData", *NEOX, f"--{name}", "int16", "--compat", "modelzoo-2.2").notes
        assert note == f"{name} has no effect: all rows are int32, as in ModelZoo 2.2"


def test_chunks_count_where_they_are_packed_as_there(world):
    def said(*words):
        return [
            note
            for note in make("LMData_VSL", *NEOX, "--max_chunk_size", "64", *words).notes
            if "chunk" in note
        ]

    assert said() == [
        "max_chunk_size has no effect: only packing=modelzoo looks at chunks, and this is best_fit"
    ]
    assert "max_chunk_size" not in params()["dataset"]
    for words in (("--packing", "modelzoo"), ("--compat", "modelzoo-2.2")):
        assert not said(*words)
        assert params()["dataset"]["max_chunk_size"] == 64


@pytest.mark.parametrize("mode", ["LMData", "FIM"])
def test_a_stream_has_no_short_documents(mode, world):
    """A given min_sequence_len changes no row there, and the summary says so; each document by itself is left out by it."""

    def said(*words):
        return [note for note in make(mode, *words).notes if "no effect" in note]

    parts = zip(("prefix", "middle", "suffix"), "abc", strict=True)
    tokens = [word for part, token in parts for word in (f"--fim_{part}_tok", token)]
    words = [*NEOX, "--max_seq_length", "32", *(tokens if mode == "FIM" else ())]
    assert not said(*words)
    rows = params()["post-process"]["n_examples"]
    assert said(*words, "--min_sequence_len", "1000") == [
        "min_sequence_len has no effect: with pack_sequences documents are one stream, and short ones stay in it"
    ]
    assert params()["post-process"]["n_examples"] == rows > 0
    assert not said(*words, "--min_sequence_len", "1000", "--pack_sequences", "False")
    assert params()["post-process"]["n_examples"] == 0


def test_a_remainder_is_of_streams(world):
    few = ("--min_sequence_len", "0", "--write_remainder")
    (note,) = make("LMData_VSL", *NEOX, *few, "False").notes
    assert note.startswith("write_remainder has no effect: rows of mode LMData_VSL never go on")
    (note,) = make("LMData", *NEOX, *few, "False", "--pack_sequences", "False").notes
    assert note.startswith("tail=drop has no effect: without pack_sequences")
    assert not make("LMData_VSL", *NEOX, *few, "True").notes


OF_MODES = {
    "jsonl_key": ("LMData", "LMData_VSL", "FIM"),
    "tail": ("LMData", "FIM"),
    "fold_long_doc": ("LMData_VSL",),
    "fim_rate": ("FIM",),
    "prompt_key": ("Summarization", "Summarization_VSL", "DPO"),
    "sep_token": ("Summarization", "Summarization_VSL"),
    "eos_after_prompt": ("Summarization_VSL",),
    "response_delimiter": ("DPO",),
    "respose_delimiter": ("DPO",),
    "packing": ("LMData_VSL", "Summarization_VSL"),
    "min_sequence_len": tuple(mode for mode in MODES if mode != "DPO"),
    "params": tuple(MODES),
    "shuffle": tuple(MODES),
    "output_name": tuple(MODES),
}


@pytest.mark.parametrize("name", OF_MODES)
def test_options_of_modes(name):
    assert modes_with(name) == OF_MODES[name]


def test_groups_of_the_help_name_the_modes():
    for field in fields_of(RowOptions):
        having, shown = modes_with(field.name), field.option.group
        if len(having) < len(MODES) and field.name != "mode":
            expected = "All modes but DPO" if len(having) == len(MODES) - 1 else ", ".join(having)
            assert shown == expected, field.name


@pytest.mark.parametrize("mode", MODES)
def test_an_option_of_other_modes_is_refused(mode, world):
    values = {
        "fold_long_doc": "True",
        "fim_rate": "0.9",
        "tail": "pad",
        "min_sequence_len": "4",
        "eos_after_prompt": "True",
        "packing": "best_fit",
    }
    for name, modes in OF_MODES.items():
        if mode not in modes:
            words = (f"--{name}", values.get(name, "text"))
            with pytest.raises(
                UsageError, match=f"{name} is no option of mode {mode}, but of {', '.join(modes)}"
            ) as caught:
                make(mode, *NEOX, *words)
            assert "Expected the fields" in str(caught.value) or f"hdf5 {mode} --help" in str(caught.value)


def test_options_that_ask_for_nothing_are_no_options_of_other_modes(world):
    words = (
        "--short_seq_prob",
        "0.0",
        "--pack_sequences",
        "False",
        "--prompt_key",
        "text",
        "--completion_key",
        "body",
    )
    make("Summarization", *NEOX, *words)
    assert params()["post-process"]["n_examples"]


def test_one_record_that_cannot_be_used_is_named(world):
    """With the option that a person may have forgotten."""
    lines = [{"messages": ["one", "two"]}, {"messages": [{"content": "one"}, {"content": "two"}]}]
    Path("raw/a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    words = ("--multi_turn_key", "messages", "--compat", "modelzoo-2.2", "--min_sequence_len", "1")
    (note,) = make("Summarization", *NEOX, *words).notes
    assert note == (
        "1 document lacks a field that the mode reads, or has no usable value there, and is not in the output: "
        "a.jsonl row 1 (an object in 'messages.0', whose text multi_turn_content_key can name)"
    )


def test_a_misspelled_option_of_the_script(world):
    Path("raw/a.jsonl").write_text(json.dumps({"prompt": "one", "chosen": "two", "rejected": "a"}) + "\n")
    for name in ("respose_delimiter", "response_delimiter"):
        make("DPO", *NEOX, f"--{name}", "[/INST]")
        assert params()["dataset"]["response_delimiter"] == "[/INST]"


def test_what_was_given_is_written_without_places_or_secrets(world):
    (world / "list.txt").write_text("raw/a.jsonl\n")
    words = ("--auth_token", "hf_secret", "--output_dir", f"{world}/data_dir/")
    for workers in ("1", "2"):
        found = run(*NEOX, *words, "--processes", "0", "--workers", workers)
        assert {**found["setup"], "mode": 0, "jsonl_key": 0} == {
            "input_dir": "raw",
            "output_dir": "data_dir",
            "processes": 0,
            "mode": 0,
            "jsonl_key": 0,
        }
    assert {name: found["processing"][name] for name in ("tokenizer_type", "encoder_file")} == {
        "tokenizer_type": "NeoXTokenizer",
        "encoder_file": "neox.json",
    }
    assert "auth_token" not in found["processing"]
    found = run(*GPT2, "--metadata_files", f"{world}/list.txt,list.txt", "--output_dir", "data_dir")
    assert found["setup"]["metadata_files"] == ["list.txt", "list.txt"]
    assert found["processing"]["vocab_file"] == "vocab.bpe"


def test_other_processes_make_no_rows_anew(world):
    run(*NEOX, "--processes", "1")
    rows = Path("data_dir/part-000000-00000.h5").stat()
    summary = create_hdf5_dataset(["LMData", "--input_dir", "raw", *NEOX, "--processes", "2", *QUIET])
    assert (summary.done, summary.skipped) == (0, 1)
    assert Path("data_dir/part-000000-00000.h5").stat() == rows
    assert params()["setup"]["processes"] == 2


def test_our_own_command_tells_no_class_of_tokenizers(world):
    hdf5(RawTexts("raw"), "data_dir", tokenizer="neox.json", scheduler="synchronous", progress=False)
    assert "tokenizer_type" not in params()["processing"]
    assert "input_dir" not in params()["setup"]


@pytest.mark.parametrize("mode", MODES)
def test_help_of_a_mode(mode, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["hdf5", mode, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Example: dolma-dask hdf5 {mode} " in shown
    for name, modes in OF_MODES.items():
        if name != "respose_delimiter":
            assert (f"│ --{name} " in shown) == (mode in modes), name
    assert "--no-" not in shown.replace("--no-effect", "")


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
        (["LMData", "--ignore_everything", "9"], "one that dolma-dask hdf5 MODE --help shows"),
        (["LMData", "raw"], "belongs to no option"),
        (["LMData", "--max_seq_length"], "has no value"),
        (["LMData", "--max_seq_length", "nine"], "a whole number"),
        (["LMData", "--use_ftfy", "maybe"], "true or false"),
        (["LMData", *NEOX], "input_dir"),
        (["LMData", *NEOX, "--metadata_files", "none.txt"], "metadata file none.txt: there is no such file"),
        (["LMData", "--input_dir", "raw"], "tokenizer_type"),
        (["LMData", "--input_dir", "raw", "--tokenizer_type", "NeoXTokenizer"], "encoder_file is missing"),
        (["LMData", "--input_dir", "raw", *NEOX, "--skip", "README"], "skip"),
        (
            ["LMData", "--input_dir", "raw", *NEOX, "--dataset_processor", "DPOPreprocessor"],
            "expected LMDataP",
        ),
        (["LMData", "--input_dir", "raw", *NEOX, "--input_ids_dtype", "int16"], "int32"),
        (["LMData", "--input_dir", "raw", *NEOX, "--compat", "1"], "modelzoo-2.2"),
        (["LMData", "--input_dir", "nothing", *NEOX], "nothing"),
        (
            ["LMData", "--input_dir", "raw", *NEOX, "--output_dir", "raw"],
            "output_dir raw lies in input_dir raw",
        ),
        (["LMData", "--input_dir", ".", *NEOX], "output_dir ./data_dir/ lies in input_dir .; expected"),
    ],
)
def test_wrong_words(world, words, message):
    with pytest.raises(UsageError, match=message):
        create_hdf5_dataset(words)
    assert not Path("data_dir").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--params", "f"], "--params is an option of a mode; expected a mode before it: dolma-dask hdf5 DPO --params f. M"),
        (["SFT", "--input-dir", "x"], "expected a mode before it, which 'SFT' is not: dolma-dask hdf5 DPO --input-dir x. M"),
        (["--input_dir=x", "DPO"], "expected a mode before it: dolma-dask hdf5 DPO --input_dir=x. M"),
        (["--seed", "x"], "Help: dolma-dask hdf5 --help"),
        (["a", "b", "--tokenizr", "x"], "Help: dolma-dask hdf5 --help"),
    ],
)  # fmt: skip
def test_options_of_modes_without_a_mode(words, said, capsys):
    assert main(["hdf5", *words]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert ("Modes: LMData, " in printed) == said.endswith("M")


def test_shuffle_false_is_false(world):
    assert run(*NEOX, "--shuffle", "False")["post-process"]["n_examples"] == 1
