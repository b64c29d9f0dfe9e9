"""A document that a tagger cannot do has none of its attributes, is set aside with the reason, and decides the exit status by policy."""

import base64
import json

import pyarrow as pa
import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError

ROWS = [("a", "fine"), ("b", "bad"), ("c", "fine too"), ("d", "bad"), ("e", "end")]


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "v0/documents"
    folder.mkdir(parents=True)
    rows = [{"id": id, "text": text, "source": "s"} for id, text in ROWS]
    (folder / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "v0"


def of_texts():
    @dk.tagger(name="picky_v1", types="length", version=1)
    def picky(text: str) -> float:
        if text == "bad":
            raise ValueError("not this one")
        return float(len(text))

    return picky


class OfBatches:
    """A plug-in's own object, which knows nothing of our errors."""

    name, version, params = "picky_v1", 1, "{}"
    types, reads = {"length": "document"}, ("text",)

    def __call__(self, batch):
        texts = batch.column("text").to_pylist()
        if "bad" in texts:
            raise KeyError("bad")
        return pa.RecordBatch.from_pydict({"length": pa.array([float(len(text)) for text in texts])})


@pytest.mark.parametrize("make", [of_texts, OfBatches])
def test_other_documents_keep_their_attributes(root, make):
    policy = {"on_bad_record": "quarantine", "max_bad_fraction": 0.5}
    summary = dk.tag(str(root), [make(), "char_length_v1"], **policy, scheduler="synchronous")
    assert summary.exit_status == 0
    rows = [json.loads(line) for line in (root / "attributes/picky_v1/x.jsonl").read_text().splitlines()]
    key = "picky_v1__picky_v1__length"
    expected = [{} if text == "bad" else {key: [[0, len(text), len(text)]]} for _, text in ROWS]
    assert [(row["id"], row["attributes"]) for row in rows] == list(zip("abcde", expected, strict=True))
    (listed,) = (root / "_quarantine").rglob("*.jsonl")
    aside = [json.loads(line) for line in listed.read_text().splitlines()]
    assert [(item["row"], item["reason"]) for item in aside] == [(1, "tagger_failed"), (3, "tagger_failed")]
    assert all(
        "picky_v1" in item["expected"] and "bad" in str(base64.b64decode(item["raw_base64"]))
        for item in aside
    )
    again = dk.tag(str(root), ["char_length_v1"], scheduler="synchronous")
    assert again.exit_status == 0


@pytest.mark.parametrize(("policy", "expected"), [({}, "picky_v1"), ({"on_bad_record": "quarantine"}, "bad")])
def test_too_many_decide_the_exit_status(root, policy, expected):
    if policy:
        assert dk.tag(str(root), of_texts(), **policy, scheduler="synchronous").exit_status == 1
    else:
        with pytest.raises(StageError, match=expected):
            dk.tag(str(root), of_texts(), scheduler="synchronous")


def test_a_tagger_that_can_do_no_batch_is_told_by_its_first_error(root):
    @dk.tagger(name="broken_v1", types="length", version=1, batch=True)
    def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("not any")

    with pytest.raises(StageError, match="on a batch of 5 documents: ValueError: not any"):
        dk.tag(str(root), broken, on_bad_record="quarantine", max_bad_fraction=1.0, scheduler="synchronous")
