"""Lines of a large text are measured in parts: what is written does not depend on them."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dolma_dask.taggers.registry import get_tagger
from dolma_dask.text import view
from dolma_dask.text.view import TextView

TEXTS = [
    "",
    "\n",
    "\n\nΟΔΟΣ\nΣ\n",
    "a line. of words\n• Bullets, 12½ {javascript}\r\n" * 20 + "an end without one …",
    "one line without an end " * 9,
    "é😀\n" * 50,
]
NAMES = ("redpajama_v2_doc", "redpajama_v2_lines")


def batch_of(texts: list[str]) -> pa.RecordBatch:
    columns = {"text": texts, "metadata": ['{"language": "en"}'] * len(texts)}
    return pa.record_batch({name: pa.array(values, pa.large_string()) for name, values in columns.items()})


def tagged(batch: pa.RecordBatch) -> list[list[dict[str, object]]]:
    """Return what taggers of one view find."""
    shared = TextView(batch.column("text"))
    return [get_tagger(name).of_view(shared, batch).to_pylist() for name in NAMES]  # type: ignore[attr-defined]


@pytest.mark.parametrize("part_bytes", [1, 7, 64, 1000])
def test_parts_of_any_size(part_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of([*TEXTS, "".join(TEXTS)])
    expected = tagged(batch)
    monkeypatch.setattr(view, "PART_BYTES", part_bytes)
    assert tagged(batch) == expected
    assert tagged(batch.slice(2, 3)) == [rows[2:5] for rows in expected]


@given(st.lists(st.text(alphabet="aΣ.́ \n\r\u2028", max_size=20), max_size=4))
def test_parts_of_any_text(texts: list[str]) -> None:
    batch = batch_of(texts)
    expected = tagged(batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view, "PART_BYTES", 3)
        assert tagged(batch) == expected
        found = [""] * len(texts)
        for first, part in TextView(batch.column("text")).parts():
            for row, text in enumerate(part.texts.to_pylist(), first):
                found[row] += text
    assert found == texts
