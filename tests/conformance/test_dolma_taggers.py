"""The taggers give what the Dolma toolkit gave, for every row and key of its recorded output."""

import gzip
import json

import pyarrow as pa
import pytest

from dolma_dask.taggers.registry import get_tagger

pytestmark = pytest.mark.conformance

DOCUMENTS = 249


def read_rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["char_length_v1", "gopher_v2", "whitespace_tokenizer_v1"])
def test_every_score_is_that_of_the_toolkit(shared, name):
    folder = shared / "conformance" / "dolma" / "in"
    tagger, compared = get_tagger(name), 0
    for path in sorted((folder / "documents").glob("*/*.jsonl.gz")):
        documents = read_rows(path)
        expected = read_rows(folder / "attributes" / name / path.relative_to(folder / "documents"))
        texts = [document["text"] for document in documents]
        tagged = tagger(
            pa.RecordBatch.from_arrays([pa.array(texts, pa.large_string())], names=["text"])
        ).to_pylist()
        for document, text, scores, row in zip(documents, texts, tagged, expected, strict=True):
            assert row["id"] == document["id"]
            spans = {
                f"{name}__{name}__{key}": [[0, len(text), round(score, 5)]]
                for key, score in scores.items()
                if score is not None
            }
            assert spans == row["attributes"], (path.name, document["id"])
            assert list(spans) == list(row["attributes"]), "keys are written in the toolkit's order"
            compared += 1
    assert compared == DOCUMENTS
