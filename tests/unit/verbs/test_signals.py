"""signals: rows in the published form, for documents with and without what CCNet gives them."""

import json

import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError

from .conftest import read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
SHARD = "2022-49/0000/en_head"


def make(root, texts, **metadata):
    rows = [
        {"id": f"{SHARD}.json.gz/{row}", "text": text, "source": "rpv2", "metadata": metadata}
        for row, text in enumerate(texts)
    ]
    write_lines(root / f"v0/documents/{SHARD}.jsonl.gz", [json.dumps(row) for row in rows])


def signals(root, **options):
    dk.signals(str(root / "v0"), str(root / "out"), **HERE, **options)
    return [json.loads(line) for line in read_lines(root / f"out/{SHARD}.signals.json.gz")]


def test_rows_have_the_keys_order_and_types_of_the_published_ones(tmp_path):
    make(
        tmp_path, ["One line.\nThe other"], language="en", url='http://a.example/"é"', nlines=2, bucket="head"
    )
    (row,) = signals(tmp_path)
    assert list(row) == ["id", "id_int", "metadata", "quality_signals"]
    assert row["id"] == f"{SHARD}.json.gz/0"
    assert row["metadata"] == {
        "cc_segment": None, "cc_net_source": f"{SHARD}.json.gz", "url": 'http://a.example/"é"',
        "source_domain": None, "language": "en", "snapshot_id": "2022-49",
    }  # fmt: skip
    found = row["quality_signals"]
    assert len(found) == 7 + 29
    assert json.dumps(found["ccnet_nlines"]) == "[[0, 19, 2.0]]"
    assert (
        json.dumps(found["ccnet_perplexity"])
        == json.dumps(found["rps_doc_ut1_blacklist"])
        == "[[0, 19, null]]"
    )
    assert json.dumps(found["rps_doc_word_count"]) == "[[0, 19, 4]]"
    assert json.dumps(found["rps_lines_num_words"]) == "[[0, 10, 2], [10, 19, 2]]"
    assert json.dumps(found["rps_lines_start_with_bulletpoint"]) == "[[0, 10, 0.0], [10, 19, 0.0]]"


def test_a_document_without_text(tmp_path):
    make(tmp_path, [""])
    found = signals(tmp_path)[0]["quality_signals"]
    assert found["rps_lines_start_with_bulletpoint"] == [[0, 0, None]]
    assert found["rps_lines_num_words"] == []
    assert found["rps_doc_mean_word_length"] == [[0, 0, None]]
    assert json.dumps(found["rps_doc_word_count"]) == "[[0, 0, 0]]"


def test_they_can_be_attached_again(tmp_path):
    make(tmp_path, ["some text", "more of it, with words"], language="en")
    signals(tmp_path)
    dk.attach(str(tmp_path / "v0"), str(tmp_path / "out"), name="rps", **HERE)
    frame = dk.read_dataframe(str(tmp_path / "v0"), ["rps_doc_word_count"], attributes=["rps"]).compute()
    assert frame["rps_doc_word_count"].tolist() == [2.0, 5.0]


def test_a_rule_and_lists(tmp_path):
    make(tmp_path, ["kill it", "no"], language="en")
    (tmp_path / "lists/bad_words").mkdir(parents=True)
    (tmp_path / "lists/bad_words/en.txt").write_text("kill\n")
    (row,) = signals(tmp_path, where=f"id == '{SHARD}.json.gz/0'", artifacts=str(tmp_path / "lists"))
    assert row["quality_signals"]["rps_doc_ldnoobw_words"] == [[0, 7, 1.0]]
    with pytest.raises(UsageError, match=r"artifacts \['bad_words/en.txt'\], now not given"):
        signals(tmp_path, where=f"id == '{SHARD}.json.gz/0'")


@pytest.mark.parametrize("identity", ["x", "17"])
def test_other_ids_are_refused(tmp_path, identity):
    line = json.dumps({"id": identity, "text": "", "source": "s"})
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", [line])
    with pytest.raises(StageError, match=f"id '{identity}' has no row number"):
        dk.signals(str(tmp_path / "v0"), str(tmp_path / "out"), **HERE)


def test_signals_never_come_among_the_documents(tmp_path):
    write_lines(tmp_path / f"v0/documents/documents/{SHARD}.jsonl.gz", [])
    with pytest.raises(UsageError, match="lies among the documents"):
        dk.signals(str(tmp_path / "v0"), str(tmp_path / "v0"), **HERE)
