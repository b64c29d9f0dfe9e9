"""On the corpus of the demo: what `find` finds of tokens, `trace` leads back to its document, for a version, a shuffled one, token files and rows."""

from pathlib import Path

import pytest
from small_corpus import collect_small_corpus

import dolma_dask as dk
from dolma_dask.questions.tracing import index
from dolma_dask.testing.tokenizer import train_tokenizer

pytestmark = pytest.mark.e2e
HERE = {"scheduler": "synchronous", "progress": False}
EACH = 9
"""One document in so many is looked for."""


@pytest.fixture
def demo(tmp_path, monkeypatch) -> Path:
    """The demo's documents, and a shuffled version in files of one size, with token files and rows of both."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    index._folder.cache_clear()
    root = tmp_path / "demo"
    collect_small_corpus(root)
    dk.demo_corpus(root)
    words = "".join(path.read_text() for path in sorted(root.glob("raw/licences/**/*.txt"))).split()
    train_tokenizer(words[:20_000], root / "tokenizer.json", 500)
    v0, v1, tokens = f"{root}/v0", f"{root}/v1", {"tokenizer": f"{root}/tokenizer.json"}
    dk.mix(v0, to=v1, shuffle=True, seed=3, max_size=200_000, **HERE)
    dk.ragged(v0, f"{root}/tokens/v0", **tokens, **HERE)
    dk.ragged(
        v1, f"{root}/tokens/v1", **tokens, format="megatron", shuffle=True, seed=4, max_size=100_000, **HERE
    )
    dk.hdf5(v1, f"{root}/rows", **tokens, mode="LMData_VSL", max_seq_length=512, shuffle=True, **HERE)
    yield root
    index._folder.cache_clear()


def test_trace_of_what_is_found_is_the_document(demo):
    documents = dk.read_dataframe(f"{demo}/v0", ["id", "text"]).compute(scheduler="synchronous")
    texts = dict(zip(documents["id"], documents["text"], strict=True))
    ids = tuple(sorted(texts)[::EACH])
    found = dk.find(ids, str(demo), **HERE)
    assert found.exit_status == 0
    for one in found.ids:
        assert {Path(place.dataset).name for place in one.documents} == {"v0", "v1"}
        folders = {str(Path(place.folder).relative_to(demo)) for place in one.tokens}
        assert folders >= {"tokens/v0", "tokens/v1"}
        assert "rows" in folders or len(texts[one.id]) < 1000
        for place in one.tokens:
            parts = dk.trace(f"{place.folder}/{place.file}", place.row).documents
            (part,) = (part for part in parts if (part.place, part.start) == (place.place, place.start))
            assert (part.id, part.state, part.size) == (one.id, "there", place.size)
            assert part.text == texts[one.id][: len(part.text)]
