"""A disk that forgets, and what stands on it: published files, the user's cache, the journal, partial downloads."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dolma_dask.io import partial as partial_files
from dolma_dask.io import user_cache
from dolma_dask.io.objects import Version
from dolma_dask.io.partial import partial
from dolma_dask.io.publish import publish, publish_later
from dolma_dask.io.waiting import Waiting
from dolma_dask.journal import Journal, Record
from dolma_dask.testing.power import Disk

NEVER = 1 << 60
CUT, ENDED = 9, 0


def powerless(folder: Path, moment: int, seed: int, work: Callable[[], Any]) -> bool:
    """Work in another process under which the power fails, before an operation or when all is done; tell whether it was done."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == ENDED
    try:
        disk = Disk(folder, moment, f"{seed} {moment}", lambda: os._exit(CUT))
        disk.install()
        partial_files.machine_start = lambda: "before the power failed"
        work()
        disk.end()
        os._exit(ENDED)
    finally:
        os._exit(1)


def moments(folder: Path, seeds: int, work: Callable[[Path], Any]) -> Iterator[tuple[Path, bool]]:
    """Work in a folder each under which the power fails at all moments; yield it, and whether the work was done."""
    for seed in range(seeds):
        moment, is_done = 1, False
        while not is_done:
            place = folder / f"{seed}-{moment}" / "disk"
            place.mkdir(parents=True)
            is_done = powerless(place, moment, seed, lambda place=place: work(place))
            yield place, is_done
            moment += 1
            assert moment < 200, "it never ended"


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def test_a_file_that_is_not_synced_may_be_anything(tmp_path: Path) -> None:
    def careless(place: Path) -> None:
        (place / "new").write_bytes(b"whole")
        (place / "new").replace(place / "file")

    found = {content(place / "file") for place, _ in moments(tmp_path, 40, careless)}
    assert found >= {None, b"", b"wh", b"wh\0\0\0", b"\0" * 5, b"whole"}


def test_names_that_are_not_synced_may_be_the_old_ones(tmp_path: Path) -> None:
    def careless(place: Path) -> None:
        (place / "folder").mkdir()
        with (place / "folder/new").open("wb") as file:
            file.write(b"whole")
            file.flush()
            os.fsync(file.fileno())

    ended = {content(place / "folder/new") for place, is_done in moments(tmp_path, 20, careless) if is_done}
    assert ended == {None, b"whole"}


@pytest.mark.parametrize("later", [False, True])
def test_a_published_file_is_whole_or_not_there(later: bool, tmp_path: Path) -> None:
    """The old one, or the new one; the new one once that was said, in folders that were made for it."""

    def replaced(place: Path) -> None:
        for data in (b"old", b"newer"):
            with Waiting() as waiting:
                with (publish_later if later else publish)(f"{place}/a/b/file") as out:
                    out.write(data)
                waiting.appear()

    found = [(content(place / "a/b/file"), is_done) for place, is_done in moments(tmp_path, 6, replaced)]
    assert {data for data, is_done in found} == {None, b"old", b"newer"}
    assert {data for data, is_done in found if is_done} == {b"newer"}


def test_what_the_cache_gives_is_what_was_put_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cached(place: Path) -> bytes:
        monkeypatch.setattr(user_cache, "cache_folder", lambda kind: place / kind)
        return user_cache.cached("kind", "name", lambda out: out.write(b"content" * 9)).tobytes()

    for place, _ in moments(tmp_path, 4, cached):
        assert cached(place) == b"content" * 9


def test_the_journal_has_what_it_was_given_or_less(tmp_path: Path) -> None:
    names = [f"out/{number}" for number in range(3)]

    def recorded(place: Path) -> None:
        writer = Journal(str(place), "tag").start({}, ("out/",), "1")
        for name in names:
            writer.add(Record(name, name, "k", finished=1.0))
            writer.flush()
        writer.finish(0)
        writer.close()

    for place, is_done in moments(tmp_path, 2, recorded):
        journal = Journal(str(place), "tag")
        known = sorted(journal.records)
        assert known == names[: len(known)], "what was flushed first is there first"
        assert not journal.garbage
        assert not is_done or (known == names and not journal.runs[0].is_open)


def test_a_partial_file_has_the_bytes_that_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file whose content proves nothing, after the machine has started again."""
    data = bytes(range(1, 201))
    monkeypatch.setattr(partial_files, "_SAFE_BYTES", 70)

    def received(place: Path, until: int = 200) -> None:
        with partial(f"{place}/file") as part:
            if part.version is None:
                part.begin(Version(len(data), "s"))
            while part.bytes < until:
                part.write(memoryview(data)[part.bytes :][:25])
            if until == len(data):
                part.publish()

    kept = set()
    for place, is_done in moments(tmp_path, 5, lambda place: received(place, 175)):
        partial_files.set_free(str(place), [""])
        with partial(f"{place}/file") as part:
            kept.add(part.bytes)
            assert not is_done or part.bytes
        received(place)
        assert (place / "file").read_bytes() == data
    assert kept >= {0, 75, 150}
