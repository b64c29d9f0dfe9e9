"""show_tokenizer: what it says is what the verbs do with the tokenizer."""

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.questions.show_tokenizer import SAMPLES
from dolma_dask.testing.tokenizer import train_tokenizer


@pytest.fixture
def path(tmp_path) -> str:
    train_tokenizer(SAMPLES.values(), tmp_path / "tokenizer.json", vocab_size=400)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.add_tokens([AddedToken("   "), "<tag>"])
    first = tokenizer.token_to_id("<s>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", first)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"eos_token": "</s>", "chat_template": "{{ messages }}"}'
    )
    return str(tmp_path / "tokenizer.json")


def test_it_is_what_the_verbs_make(path, tmp_path) -> None:
    shown = dk.show_tokenizer(path)
    shard = tmp_path / "v0/documents/a.jsonl"
    shard.parent.mkdir(parents=True)
    shard.write_text(
        "".join(
            json.dumps({"id": kind, "source": "s", "text": text}) + "\n" for kind, text in SAMPLES.items()
        )
    )
    dk.ragged(str(tmp_path / "v0"), str(tmp_path / "ragged"), tokenizer=path, progress=False)
    arrays = dk.open_ragged(str(tmp_path / "ragged"))
    assert [row.tokens for row in shown.samples] == [len(arrays[row]) for row in range(len(SAMPLES))]
    assert shown.dtype == str(arrays[0].dtype)
    dk.hdf5(str(tmp_path / "v0"), str(tmp_path / "h5"), tokenizer=path, max_seq_length=2048, progress=False)
    with h5py.File(tmp_path / "h5/part-000000-00000.h5") as file:
        ids, mask, labels = file["data"][0]
        known = Tokenizer.from_file(path)
        assert shown.vocab_size == file.attrs["vocab_size"]
        assert (shown.end, shown.padding) == (
            known.id_to_token(file.attrs["eos_id"]),
            known.id_to_token(file.attrs["pad_id"]),
        )
        assert shown.adds == (known.id_to_token(ids[0]),) == ("<s>",)
        assert np.count_nonzero(labels[mask == 1] == file.attrs["eos_id"]) == len(SAMPLES)


def test_list_tells_the_same(path, capsys, monkeypatch) -> None:
    """`list` takes a tokenizer for what it is, wherever it is no tagger, and says where one on the hub is shown."""
    folder = Path(path).parent
    assert cli.main(["show-tokenizer", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    monkeypatch.chdir(folder.parent)
    (folder / "gopher_v2").write_text("no tokenizer")
    for name in (path, str(folder), folder.name, f"{folder.name}/tokenizer.json"):
        assert cli.main(["list", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["fingerprint"] == shown["fingerprint"]
    monkeypatch.chdir(folder)
    assert cli.main(["list", "gopher_v2"]) == 0
    assert "gopher_v2, version" in capsys.readouterr().out
    for name, said in (
        ("gpt2", "there is no tagger 'gpt2'.*show-tokenizer gpt2"),
        ("gopher_v3", "did you mean 'gopher_v2'"),
        ("none.json", "none.json does not exist; expected the JSON of the tokenizers library"),
        ("no/folder/here", "does not exist"),
    ):
        assert cli.main(["list", name]) == 2
        assert re.search(said, capsys.readouterr().err)


def test_what_people_see(path, capsys) -> None:
    assert cli.main(["show-tokenizer", path]) == 0
    printed = capsys.readouterr().out
    for line in (
        "model +BPE",
        "chat template +yes",
        "puts around a text +<s>",
        "3 spaces +word",
        "</s> +control",
    ):
        assert re.search(line, printed), line
    assert cli.main(["show-tokenizer", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["has_chat_template"] is True


@pytest.mark.parametrize(
    ("config", "file", "has_template", "note"),
    [
        ({}, None, False, ""),
        ({"chat_template": ""}, None, False, ""),
        ({"chat_template": "{{ messages }}"}, None, True, ""),
        ({}, "{{ messages }}", True, ""),
        ({}, "{% for", True, "chat_template.jinja is no Jinja2"),
        ({"chat_template": [{"name": "tool", "template": "a"}]}, None, True, "expected one called default"),
    ],
)
def test_its_template_is_the_one_that_writes_dialogues(config, file, has_template, note, path, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", **config}))
    if file is not None:
        (tmp_path / "chat_template.jinja").write_text(file)
    shown = dk.show_tokenizer(path)
    assert shown.has_chat_template is has_template
    assert note in " ".join(shown.notes)
    assert bool(note) == bool(shown.notes)


def test_a_tokenizer_that_does_not_say_what_ends_documents(tmp_path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"the": 0, "<unk>": 1}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "t.json"))
    shown = dk.show_tokenizer(str(tmp_path / "t.json"))
    assert (shown.end, shown.model) == (None, "WordLevel")
    assert "does not say which token ends a document" in shown.notes[0]
    assert shown.engine.startswith("tokenizers")
