"""Treatment of bad records."""

import base64
import gc
import json

import pyarrow as pa
import pytest

from dolma_dask.errors import BadRecordError
from dolma_dask.io import files
from dolma_dask.io.quarantine import Quarantine, RecordPolicy
from dolma_dask.io.records import BadRecord, Block

BATCH = pa.RecordBatch.from_pydict({"id": ["a", None, None]})
KEEP = RecordPolicy("quarantine")


def bad(row: int, raw: bytes = b"\xff{") -> BadRecord:
    return BadRecord("documents/a.jsonl", row, 10 * row, "invalid_utf8", "UTF-8", raw)


def test_the_default_is_to_fail_at_the_first(tmp_path) -> None:
    quarantine = Quarantine(RecordPolicy())
    quarantine.admit(Block(BATCH, 0))
    with pytest.raises(BadRecordError) as caught:
        quarantine.admit(Block(BATCH, 0, (bad(1), bad(2))))
    assert str(caught.value) == (
        "documents/a.jsonl, row 1, byte 10: invalid utf8; expected UTF-8. Mend the file, or set such rows aside with "
        "--on-bad-record quarantine."
    )
    assert caught.value.details == {
        "url": "documents/a.jsonl",
        "row": 1,
        "byte_offset": 10,
        "reason": "invalid_utf8",
    }
    assert files.list_files(str(tmp_path)) == []


def test_bad_records_go_to_a_file_with_their_place_and_bytes(root: str) -> None:
    quarantine = Quarantine(KEEP)
    quarantine.admit(Block(BATCH, 0, (bad(1), bad(2))))
    quarantine.admit(Block(BATCH, 3))
    quarantine.admit(Block(BATCH, 6, (bad(7, b""),)))
    assert quarantine.count == 3
    assert files.list_files(root) == []
    for verb in ("mix", "ragged"):  # the same for several outputs that are made from one reading
        (record,) = quarantine.publish(root, verb, "x/a.jsonl.gz")
        assert record.path == f"_quarantine/{verb}/x/a.jsonl.gz.jsonl"
        url = files.join(root, record.path)
        data = files.read_bytes(url)
        assert (record.bytes, record.rows, record.checksum) == (len(data), 3, files.checksum(url))
    rows = [json.loads(line) for line in data.splitlines()]
    assert rows[0] == bad(1).to_json()
    assert [(row["row"], base64.b64decode(row["raw_base64"])) for row in rows] == [
        (1, b"\xff{"),
        (2, b"\xff{"),
        (7, b""),
    ]


def test_the_file_of_an_earlier_run_goes_when_nothing_is_bad_any_more(root: str) -> None:
    first = Quarantine(KEEP)
    first.admit(Block(BATCH, 0, (bad(1),)))
    first.publish(root, "mix", "a.jsonl")
    assert len(files.list_files(root)) == 1
    assert Quarantine(KEEP).publish(root, "mix", "a.jsonl") == ()
    assert files.list_files(root) == []


def test_many_bad_records_are_not_held_in_memory(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.io.quarantine._HELD_BYTES", 1_000)
    quarantine = Quarantine(KEEP)
    for row in range(100):
        quarantine.admit(Block(BATCH, 0, (bad(row, b"x" * 100),)))
    assert quarantine._admitted._rolled  # type: ignore[union-attr]
    (record,) = quarantine.publish(str(tmp_path), "mix", "a.jsonl")
    lines = files.read_bytes(files.join(str(tmp_path), record.path)).splitlines()
    assert [json.loads(line)["row"] for line in lines] == list(range(100))


@pytest.mark.parametrize("held", [1, 1 << 20], ids=["on disk", "in memory"])
def test_what_waits_is_closed_with_the_quarantine(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dolma_dask.io.quarantine._HELD_BYTES", held)
    quarantine = Quarantine(KEEP)
    quarantine.admit(Block(BATCH, 0, (bad(1),)))
    for output in (1, 1, 2):
        quarantine.refuse(output, [bad(2)])
    waiting = [quarantine._admitted, *quarantine._refused.values()]
    del quarantine
    gc.collect()
    assert [one.closed for one in waiting if one] == [True] * 3
