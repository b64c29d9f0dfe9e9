"""Jobs: passes, announcements and staging files, with a small verb of three passes that is stopped at every step."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from example_job import FirstWordsJob
from unsealed import unsealed

from dolma_dask.dataset import open_dataset
from dolma_dask.engine import Announce, Free, Gather, Pass, Plan, Task, job, run_job
from dolma_dask.engine.lease import leased
from dolma_dask.errors import StageError, UsageError
from dolma_dask.io.documents import DocumentFile
from dolma_dask.options.groups import RunOptions

HERE = RunOptions(scheduler="synchronous", progress=False)
TEXTS = [["the cat", "a dog", "the end"], ["", "a", "the", "once"], ["a b"]]


@pytest.fixture
def root(tmp_path) -> Path:
    for number, texts in enumerate(TEXTS):
        rows = [{"id": f"{number}-{row}", "source": "s", "text": text} for row, text in enumerate(texts)]
        path = tmp_path / f"v0/documents/{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "v0"


def run(root, **options):
    return run_job(FirstWordsJob(open_dataset(str(root))), RunOptions(**{**vars(HERE), **options}))


def counts(root) -> list[list[int]]:
    lines = [path.read_text().splitlines() for path in sorted(root.glob("attributes/first_words/*"))]
    return [[int(json.loads(line)["attributes"]["count"][0][2]) for line in shard] for shard in lines]


def expected() -> list[list[int]]:
    firsts = [[" ".join(text.split()[:1]) for text in texts] for texts in TEXTS]
    total = Counter(word for words in firsts for word in words)
    return [[total[word] for word in words] for words in firsts]


def check(root, summary, done) -> None:
    assert counts(root) == expected()
    assert (summary.done, summary.skipped) == (done, 3 - done)
    assert sorted(path.name for path in root.iterdir()) == ["_journal", "attributes", "documents"]


def test_three_passes_and_nothing_twice(root, monkeypatch):
    assert run(root, dry_run=True).planned == ("0.jsonl", "1.jsonl", "2.jsonl")
    assert [path.name for path in root.iterdir()] == ["documents"]
    check(root, run(root), 3)
    monkeypatch.setattr(DocumentFile, "__iter__", None)
    check(root, run(root), 0)
    with leased(str(root / "_work/first_words-first_words"), "first_words"):
        assert run(root).skipped == 3, "whoever has nothing to do needs no lease"


class Stopped(BaseException):
    """Stands for a death of the process."""


STEPS = (Pass, Pass, Free, Pass, Free, Announce, Plan)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_stopped_around_every_step(root, monkeypatch, step, when):
    """Then with another input, so that nothing that is left may be believed that should not."""
    do, seen = job._Running._do, []

    def stop(self, one):
        seen.append(type(one))
        if len(seen) == step + 1 and when == "before":
            raise Stopped
        result = do(self, one)
        if len(seen) == step + 1:
            raise Stopped
        return result

    run(root)
    path = root / "documents/1.jsonl"
    before, other = path.read_bytes(), path.read_bytes().replace(b'"once"', b'"cats"')
    path.write_bytes(other)
    with monkeypatch.context() as patched:
        patched.setattr(job._Running, "_do", stop)
        with pytest.raises(Stopped):
            run(root)
    path.write_bytes(before)
    assert tuple(seen) == STEPS[: step + 1], "what holds is announced before the first file"
    check(root, run(root), 3 if (step, when) == (len(STEPS) - 1, "after") else 0)


def test_a_lost_staging_file_begins_anew(root, monkeypatch):
    do = job._Running._do

    def lose(self, step):
        if isinstance(step, Plan):
            monkeypatch.undo()
            next(root.glob("_work/*/*/shards/*")).unlink()
        return do(self, step)

    monkeypatch.setattr(job._Running, "_do", lose)
    check(root, run(root), 3)


def test_a_damaged_journal_in_the_work_folder_blocks_nobody(root, monkeypatch):
    """Files without a record are staging files still: nobody is asked to replace them."""
    do, steps = job._Running._do, []

    def stop(self, step):
        steps.append(step)
        if len(steps) == 2:
            raise Stopped
        return do(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(job._Running, "_do", stop)
        with pytest.raises(Stopped):
            run(root)
    segments = list(root.glob("_work/*/*/_journal/*/*"))
    assert segments
    for segment in segments:
        segment.write_text('{"unit": 3')
    check(root, run(root), 3)


def test_records_of_another_format_are_made_again_with_a_note(root):
    run(root)
    for segment in root.glob("_journal/*/*"):
        segment.write_text(unsealed(segment.read_text()).replace('{"format":2,', "{"))
    summary = run(root)
    check(root, summary, 3)
    notes = [note for note in summary.notes if "another journal format" in note]
    assert len(notes) == 2, "of the files, and of the dataset-wide record"
    assert not run(root).notes


@pytest.mark.slow
def test_another_run_at_work(root):
    with leased(str(root / "_work/first_words-first_words"), "first_words"):
        with pytest.raises(UsageError, match="another first_words works in"):
            run(root)
        assert run(root, dry_run=True).planned
    (root / "documents/1.jsonl").write_text("no JSON\n")
    with pytest.raises(StageError, match=r"1 of 3 shards failed.*1\.jsonl"):
        run(root)
    assert not list(root.rglob("*.leases*"))


@dataclass(frozen=True)
class Names:
    """Reads nothing."""

    verb: ClassVar[str] = "names"

    def run_shard(self, task):
        return task.shard


class GathersFirst(FirstWordsJob):
    """The same, behind a step that only reads."""

    def passes(self, work, known):
        tasks = [Task(name, (), ()) for name in "cab"]
        assert (yield Gather(Names(), tasks)) == ["c", "a", "b"]
        return (yield from super().passes(work, known))


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_what_is_gathered_comes_in_the_order_of_the_tasks(root, scheduler):
    job = GathersFirst(open_dataset(str(root)))
    check(root, run_job(job, RunOptions(scheduler=scheduler, progress=False)), 3)
