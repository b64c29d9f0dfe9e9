"""Small shards that are done as one: the same files and records as each by itself, and nothing of a neighbour shows."""

import gzip
import shutil
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import dolma_dask as dk
from dolma_dask.engine import Task, attempts, batches
from dolma_dask.errors import DataError, StageError
from dolma_dask.formats.digests import DocumentDigests, digests_of_parts
from dolma_dask.io.joined import NotJoinedError
from dolma_dask.io.publish import publish_later
from dolma_dask.io.records import FileRecord
from dolma_dask.io.waiting import Waiting, begin_task
from dolma_dask.journal import Record, journals

from .conftest import document

HERE: dict[str, Any] = {"scheduler": "synchronous", "progress": False}

TEXTS = ["", "a short one\nof lines\n", "ärger ☃ 😀", "x" * 9000, "and the end. " * 40]


BROKEN = ("0/14.jsonl.gz", "1/15.jsonl.gz")


def lines_of(shard: int, rows: int) -> bytes:
    texts = [TEXTS[(shard + row) % len(TEXTS)] for row in range(rows)]
    rows_of = (document(100 * shard + row, text=text, source=f"s{row % 2}") for row, text in enumerate(texts))
    return "".join(f"{line}\n" for line in rows_of).encode()


def make(root: Path) -> None:
    """Write shards of many sizes: without a last newline, of two members, empty, in several formats."""
    for shard in range(12):
        data = lines_of(shard, shard % 5)
        data = data[:-1] if shard in (1, 3, 6, 8) else data
        if shard % 3 == 0:
            data, suffix = gzip.compress(data, mtime=0), "jsonl.gz"
            data += gzip.compress(lines_of(50, 1), mtime=0) if shard == 9 else b""
        elif shard % 3 == 1:
            data, suffix = pa.Codec("zstd").compress(data, asbytes=True), "jsonl.zst"
        else:
            suffix = "jsonl"
        place = root / f"v0/documents/{shard % 2}/{shard:02d}.{suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


def spoil(root: Path) -> None:
    """Damage some shards: a bad row, a truncated file, a file that is none."""
    (root / "v0/documents/0/04.jsonl").write_bytes(lines_of(4, 2) + b"\n" + lines_of(70, 2))
    whole = gzip.compress(lines_of(80, 3))
    for name, data in zip(BROKEN, (whole[:-9], lines_of(90, 2)), strict=True):
        (root / "v0/documents" / name).write_bytes(data)


def run(root: Path, tokenizer: str, **policy: Any) -> None:
    """Do all that joins shards; those that nobody can read are gone after the first step."""
    given = {**HERE, **policy}
    with pytest.raises(StageError) if policy else nullcontext():
        dk.tag(f"{root}/v0", ["char_length_v1", "gopher_v2", "health_v1"], **given)
    for name in BROKEN:
        (root / "v0/documents" / name).unlink(missing_ok=True)
    dk.tag(f"{root}/v0", ["c4_v2"], experiment="both", **given)
    dk.mix(f"{root}/v0", to=f"{root}/v1", where="length >= 5 and word_count >= 2", **given)
    dk.mix(f"{root}/v0", to=f"{root}/v2", exclude=["$.metadata[?(@.length > 3)]"], **given)
    dk.ragged(f"{root}/v0", f"{root}/v3", tokenizer=tokenizer, where="length >= 1", **given)
    dk.validate(f"{root}/v0", **HERE)


def found(root: Path) -> dict[str, Any]:
    """Return the bytes of all files, and the records in place of those of journals, without times."""
    files = {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "_journal" not in path.parts
    }
    return files | {
        f"{place.name} {journal.verb} {unit}": _timeless(record)
        for place in sorted(root.glob("v*"))
        for journal in journals(str(place))
        for unit, record in journal.records.items()
        if unit != "report"
    }


def _timeless(record: Record) -> Any:
    known = msgspec.to_builtins(record)
    for item in (*known.get("files", ()), *known.get("inputs", ())):
        item.pop("stamp", None)
    return {name: value for name, value in known.items() if name not in ("seconds", "finished")}


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """How often tasks were done as one, and whether that went."""
    went: list[bool] = []
    whole = attempts.attempt_joined

    def noted(*given: Any) -> Any:
        outcomes = whole(*given)
        went.append(outcomes is not None)
        return outcomes

    monkeypatch.setattr(batches, "attempt_joined", noted)
    return went


@pytest.mark.parametrize("bad", [False, True], ids=["sound", "spoiled"])
def test_shards_together_give_what_each_gives_alone(
    bad: bool,
    tmp_path: Path,
    tokenizer: str,
    joined: list[bool],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", attempts.__name__)
    policy = {"on_bad_record": "quarantine", "max_bad_fraction": 1.0} if bad else {}
    outcomes = []
    for most in (32, 3, 1):
        monkeypatch.setattr(batches, "MOST_JOINED", most)
        root = tmp_path / "same"  # records name it
        make(root)
        if bad:
            spoil(root)
        run(root, tokenizer, **policy)
        outcomes.append(found(root))
        shutil.rmtree(root)
        assert (False in joined) <= bad
        assert (True in joined) == (most > 1)
        joined.clear()
    assert [record for record in caplog.records if record.name == attempts.__name__] == []
    together, few, alone = outcomes
    assert together.keys() == alone.keys() == few.keys()
    assert {name for name in alone if together[name] != alone[name] or few[name] != alone[name]} == set()
    assert sum(name.startswith("v0/attributes/gopher_v2") for name in alone) == 12 + bad
    assert sum(name.startswith("v0 tag attributes/gopher_v2") for name in alone) == 12 + bad


def test_attributes_of_other_documents_are_refused_by_their_own_name(
    tmp_path: Path, joined: list[bool]
) -> None:
    make(tmp_path)
    root = tmp_path / "v0"
    dk.tag(str(root), "char_length_v1", **HERE)
    joined.clear()
    first, second = (root / f"attributes/char_length_v1/{name}.jsonl" for name in ("0/02", "0/08"))
    held = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(held)
    with pytest.raises(StageError) as caught:
        dk.mix(str(root), to=f"{tmp_path}/v1", where="length >= 1", **HERE)
    assert sorted(failure.shard for failure in caught.value.failures) == ["0/02.jsonl", "0/08.jsonl"]
    assert len(list((tmp_path / "v1/documents").rglob("*.jsonl*"))) == 10
    assert joined


class Joining:
    """Writes two files for each task; those of some tasks as one."""

    verb = "write"

    def __init__(self, root: Path, wrong: str = "") -> None:
        self.root, self.wrong = root, wrong
        self.done: list[str] = []

    def joins(self, task: Task) -> str | None:
        return None if task.shard.isupper() else "all"

    def run_joined(self, tasks: list[Task]) -> list[list[Record]]:
        self.done.append("".join(task.shard for task in tasks))
        return [self._write(task) for task in tasks]

    def run_shard(self, task: Task) -> list[Record]:
        self.done.append(task.shard)
        return self._write(task)

    def _write(self, task: Task) -> list[Record]:
        begin_task()
        for name in ("first", "second"):
            with publish_later(f"{self.root}/{name}/{task.shard}") as out:
                out.write(task.shard.encode())
        if task.shard == self.wrong:
            raise ValueError("wrong")
        return [Record(task.shard, task.shard, "k", files=(FileRecord(f"second/{task.shard}", 1, ""),))]


def done(stage: Any, names: str) -> dict[str, Any]:
    outcomes: dict[str, Any] = {}
    batches.run_all(
        stage,
        batches.Groups(stage, [Task(name, (), ()) for name in names]),
        lambda task, outcome: outcomes.update({task.shard: outcome}),
    )
    return outcomes


def test_neighbours_that_join_are_done_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MOST_JOINED", 3)
    stage = Joining(tmp_path)
    outcomes = done(stage, "abAcdefBg")
    assert stage.done == ["ab", "A", "cde", "f", "B", "g"]
    assert list(outcomes) == list("abAcdefBg")
    assert all(isinstance(outcome, list) for outcome in outcomes.values())
    assert sorted(path.name for path in (tmp_path / "second").iterdir()) == sorted("abAcdefBg")


def test_one_that_fails_takes_no_neighbour_along(tmp_path: Path) -> None:
    stage = Joining(tmp_path, wrong="b")
    outcomes = done(stage, "abc")
    assert stage.done == ["abc", "a", "bc", "b", "c"]
    assert outcomes["b"].error == "ValueError"
    assert [outcomes[name][0].unit for name in "ac"] == ["a", "c"]
    assert sorted(path.name for path in (tmp_path / "second").iterdir()) == ["a", "c"]


@pytest.mark.parametrize(
    ("error", "is_told"),
    [(ValueError("wrong"), True), (NotJoinedError("no"), False), (DataError("bad"), False)],
    ids=lambda value: type(value).__name__,
)
def test_what_nobody_foresaw_is_in_the_log(
    error: Exception,
    is_told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run_joined(tasks: list[Task]) -> list[list[Record]]:
        raise error

    stage = Joining(tmp_path)
    monkeypatch.setattr(stage, "run_joined", run_joined)
    with caplog.at_level("DEBUG", attempts.__name__):
        outcomes = done(stage, "ab")
    assert [outcomes[name][0].unit for name in "ab"] == ["a", "b"]
    told = [(record.getMessage(), record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert told == ([("write of a and 1 more does not go as one", error)] if is_told else [])


def test_one_whose_file_cannot_appear_takes_no_neighbour_along(tmp_path: Path) -> None:
    (tmp_path / "second/b").mkdir(parents=True)
    outcomes = done(Joining(tmp_path), "abc")
    assert "is a folder" in outcomes["b"].message
    assert [outcomes[name][0].unit for name in "ac"] == ["a", "c"]
    assert (tmp_path / "second/c").read_bytes() == b"c"


def test_names_of_a_folder_are_synced_once_and_each_task_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    replace = Path.replace
    monkeypatch.setattr(
        Path, "replace", lambda self, target: (events.append(target.name), replace(self, target))[1]
    )
    monkeypatch.setattr(
        "dolma_dask.io.publish.sync_names", lambda folder: events.append(f"sync {folder.name}")
    )
    with Waiting() as waiting:
        for task in ("1", "2"):
            begin_task()
            for name in (f"a/{task}.len", f"a/{task}.ids"):
                with publish_later(f"{tmp_path}/{name}"):
                    pass
        waiting.appear()
    assert events == ["1.len", "2.len", "sync a", "1.ids", "2.ids", "sync a"]


def test_digests_of_parts_are_those_of_each() -> None:
    draw = np.random.default_rng(1)
    values = [[f"{at}-{draw.integers(9)}" for at in range(9)] for _ in range(3)]
    batch = pa.record_batch(
        {n: pa.array(v, pa.large_string()) for n, v in zip(("id", "source", "text"), values, strict=True)}
    )
    cuts = np.array([0, 0, 4, 8, 9])
    for taken in (None, draw.random(9) < 0.5):
        expected = []
        for start, stop in pairwise(cuts):
            one = DocumentDigests()
            one.update(batch.slice(start, stop - start), None if taken is None else taken[start:stop])
            expected.append((one.ids, one.content))
        assert digests_of_parts(batch, cuts, taken) == expected


def test_one_that_cannot_be_asked_is_done_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of `joins` ended the whole run."""
    error = ValueError("wrong")

    def joins(task: Task) -> str:
        if task.shard == "c":
            raise error
        return "all"

    stage = Joining(tmp_path)
    monkeypatch.setattr(stage, "joins", joins)
    with caplog.at_level("DEBUG", attempts.__name__):
        outcomes = done(stage, "abcde")
    assert stage.done == ["ab", "c", "de"]
    assert [outcomes[name][0].unit for name in "abcde"] == [*"abcde"]
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]
