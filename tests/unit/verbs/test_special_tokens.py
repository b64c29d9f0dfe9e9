"""special_tokens_in_text: the same words at every front door, and documents that spell tokens out are said, listed or refused."""

import json

import dask.bag
import numpy as np
import pytest
from tokenizers import Tokenizer, models

import dolma_dask as dk
from dolma_dask.errors import BadRecordBudgetError, StageError, UsageError
from dolma_dask.journal import Journal
from dolma_dask.testing.tokenizer import END_OF_TEXT

from .conftest import write_lines
from .test_hdf5 import read_params, read_rows, unpacked

TEXTS = ["one two", f"a {END_OF_TEXT} b", "", f"{END_OF_TEXT}{END_OF_TEXT}"]
HERE = {"progress": False, "scheduler": "synchronous"}


@pytest.fixture
def spelling(tmp_path):
    rows = [{"id": str(number), "text": text, "source": "s"} for number, text in enumerate(TEXTS)]
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", [json.dumps(row) for row in rows])
    return str(tmp_path / "v0")


def ids(folder) -> list[list[int]]:
    return [document.tolist() for document in dk.open_ragged(str(folder))]


def sidecar(folder) -> dict:
    (path,) = folder.glob("*-of-*.json")
    return json.loads(path.read_text())


def test_text_by_default_counted_and_listed(spelling, tmp_path, tokenizer):
    out = dk.ragged(spelling, str(tmp_path / "r"), tokenizer=tokenizer, **HERE)
    assert [0 in document for document in ids(tmp_path / "r")] == [False] * 4
    assert [Tokenizer.from_file(tokenizer).decode(document) for document in ids(tmp_path / "r")] == TEXTS
    assert out.counts["documents_with_special_tokens"] == 2
    (note,) = [note for note in out.notes if "special tokens" in note]
    assert f"a.jsonl.gz row 1 ({END_OF_TEXT}), a.jsonl.gz row 3 ({END_OF_TEXT})" in note
    assert sidecar(tmp_path / "r")["special_tokens"] == {"in_text": "text", "documents": 2}
    (record,) = Journal(str(tmp_path / "r"), "ragged").records.values()
    assert [row for _, row, _ in record.info["findings"]["documents_with_special_tokens"]] == [1, 3]
    with pytest.raises(UsageError, match="special_tokens_in_text not given, now 'encode'"):
        dk.ragged(spelling, str(tmp_path / "r"), tokenizer=tokenizer, special_tokens_in_text="encode", **HERE)


def test_nothing_is_said_where_no_text_spells_any(dataset, tmp_path, tokenizer):
    out = dk.ragged(str(dataset), str(tmp_path / "r"), tokenizer=tokenizer, name="n", **HERE)
    assert not any("special" in text for text in (*out.counts, *out.notes))
    asked = {"tokenizer": tokenizer, "name": "n", "special_tokens_in_text": "encode"}
    dk.ragged(str(dataset), str(tmp_path / "e"), **asked, **HERE)
    for path in (tmp_path / "r").glob("*-of-*"):
        other = (tmp_path / "e" / path.name).read_bytes()
        assert path.read_bytes() == other or b'"in_text": "encode"' in other
        assert b"special_tokens" not in path.read_bytes()


def test_refused_documents_are_bad_records(spelling, tmp_path, tokenizer):
    asked = {"tokenizer": tokenizer, "special_tokens_in_text": "refuse", **HERE}
    with pytest.raises(StageError, match=r"a\.jsonl\.gz, row 1: special tokens; expected a text that"):
        dk.ragged(spelling, str(tmp_path / "r"), **asked)
    with pytest.raises(BadRecordBudgetError, match="2 of 4 rows are bad"):
        dk.ragged(spelling, str(tmp_path / "r"), on_bad_record="quarantine", **asked)
    aside = {"on_bad_record": "quarantine", "max_bad_fraction": 1.0}
    out = dk.ragged(spelling, str(tmp_path / "r"), **aside, **asked)
    assert [out.counts[name] for name in ("documents_out", "bad_records", "documents_refused")] == [2, 2, 2]
    assert [len(document) > 0 for document in ids(tmp_path / "r")] == [True, False]
    lines = (tmp_path / "r/_quarantine/ragged/a.jsonl.gz.jsonl").read_text().splitlines()
    assert [(json.loads(line)["row"], json.loads(line)["reason"]) for line in lines] == [
        (1, "special_tokens"),
        (3, "special_tokens"),
    ]


def test_outputs_of_a_mix_each_have_their_own(spelling, tmp_path, tokenizer):
    ragged = {"to": str(tmp_path / "r"), "tokenizer": tokenizer, "special_tokens_in_text": "refuse"}
    rows = {"to": str(tmp_path / "h"), "tokenizer": tokenizer, "max_seq_length": 8}
    aside = {"on_bad_record": "quarantine", "max_bad_fraction": 1.0}
    out = dk.mix(spelling, to=str(tmp_path / "v1"), ragged=ragged, hdf5=rows, **aside, **HERE)
    others = dict(out.others)
    assert (out.counts["documents_out"], out.counts["bad_records"]) == (4, 0)
    assert (others["ragged"].counts["documents_out"], others["ragged"].counts["bad_records"]) == (2, 2)
    assert others["hdf5"].counts["documents_with_special_tokens"] == 2
    assert any(note.startswith("ragged: 2 documents spell out") for note in out.notes)
    assert sidecar(tmp_path / "r")["special_tokens"] == {"in_text": "refuse", "documents": 2}
    assert read_params(tmp_path / "h")["post-process"]["documents_with_special_tokens"] == 2
    ends = np.count_nonzero(read_rows(tmp_path / "h")[:, 0] == 0)
    alone = dk.hdf5(spelling, str(tmp_path / "alone"), tokenizer=tokenizer, max_seq_length=8, **HERE)
    assert ends == np.count_nonzero(read_rows(tmp_path / "alone")[:, 0] == 0)
    assert any("special tokens, which became text: with" in note for note in alone.notes)
    assert (tmp_path / "v1/_quarantine").exists() is False


def test_modelzoo_encodes_them(spelling, tmp_path, tokenizer):
    asked = {"tokenizer": tokenizer, "max_seq_length": 8, **HERE}
    dk.hdf5(spelling, str(tmp_path / "like"), compat="modelzoo-2.2", **asked)
    dk.hdf5(spelling, str(tmp_path / "text"), compat="modelzoo-2.2", special_tokens_in_text="text", **asked)
    ends = [unpacked(read_rows(tmp_path / name)).count(0) for name in ("like", "text")]
    assert ends[0] == ends[1] + 3
    assert read_params(tmp_path / "like")["dataset"]["special_tokens_in_text"] == "encode"


def test_dataframes_and_bags_have_the_same_words(spelling, tmp_path, tokenizer):
    rows = [{"id": str(number), "text": text, "source": "s"} for number, text in enumerate(TEXTS)]
    bag = dask.bag.from_sequence(rows, npartitions=1)
    asked = {"tokenizer": tokenizer, "special_tokens_in_text": "refuse", "scheduler": "synchronous"}
    aside = {"on_bad_record": "quarantine", "max_bad_fraction": 1.0}
    out = dk.write_ragged(bag, str(tmp_path / "r"), **asked, **aside)
    assert (len(ids(tmp_path / "r")), out.counts["bad_records"]) == (2, 2)
    assert any("2 documents spell out" in note for note in out.notes)
    text = dk.write_hdf5(bag, str(tmp_path / "h"), tokenizer=tokenizer, max_seq_length=8)
    assert text.counts["documents_with_special_tokens"] == 2


def test_characters_that_the_tokenizer_drops_are_said(spelling, tmp_path):
    letters = Tokenizer(models.BPE({letter: number for number, letter in enumerate("abonetw ")}, []))
    letters.save(str(tmp_path / "letters.json"))
    asked = {"tokenizer": str(tmp_path / "letters.json"), **HERE}
    out = dk.ragged(spelling, str(tmp_path / "r"), **asked)
    assert out.counts["documents_with_lost_characters"] == 2
    (note,) = [note for note in out.notes if "drops" in note]
    assert "a.jsonl.gz row 1 (" in note
    assert sidecar(tmp_path / "r")["documents_with_lost_characters"] == 2
    out = dk.hdf5(spelling, str(tmp_path / "h"), max_seq_length=8, eos="none", **asked)
    assert read_params(tmp_path / "h")["post-process"]["documents_with_lost_characters"] == 2
    assert any("drops" in note for note in out.notes)
