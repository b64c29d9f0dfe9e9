"""The laws that every verb keeps, as tests: the same bytes anywhere and after any death, whole files or none, nothing done twice.

Subclass `VerbLaws` in a test module, say what there is before and which commands run; pytest does the rest::

    class TestMine(VerbLaws):
        cases = {"tag": Case("tag WORLD/v0 --taggers my_signal_v1", ["v0/attributes"], ["--source other"], redone=1)}

        @classmethod
        def make_world(cls, world):
            write_documents(world / "v0/documents")

        @classmethod
        def change(cls, world):
            change_one_letter(world / "v0/documents/a.jsonl.gz")

A verb more is a case more. Needs pytest and psutil. Cost: about 30 runs of each command, most of them in this process, ten in processes of
their own, of which one starts worker processes.
"""

import contextlib
import hashlib
import io
import json
import os
import random
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import dask
import pytest
from msgspec import Struct

from dolma_dask import clusters
from dolma_dask.engine import Pass, Plan
from dolma_dask.engine.job import _Running
from dolma_dask.formats.segments import segments_path
from dolma_dask.formats.token_files import FORMATS, SIDECAR
from dolma_dask.io import files
from dolma_dask.journal import Journal
from dolma_dask.registry import load
from dolma_dask.testing.commands import (
    SLOW_DISK,
    Command,
    WatchedFiles,
    held,
    held_at,
    killed_at,
    powerless_at,
    wait_until,
)
from dolma_dask.testing.disturbance import RELEASED, counting

PLACES = ("threads", "processes", "config", "cluster of 2", "active client")
"""Schedulers of commands, besides one process without threads."""

SEED = os.environ.get("KILL_SEED", "20")
"""Another seed kills at other moments."""

THOROUGH = os.environ.get("THOROUGH") == "1"
"""True if cases that repeat the stages of another are killed and watched too."""

POWER_FAILURES = 3 if THOROUGH else 1
"""Power failures in the middle of a command, before one at its end."""

NEVER = 1 << 60
"""Number of an operation to which no command comes."""

NOWHERE = "tcp://127.0.0.1:1"
"""No scheduler answers there: a run with something to do fails."""


class Case(Struct, frozen=True):
    """A call of a verb."""

    words: str  # the command; WORLD is the folder of the world, of which it sees no file or folder that it does not name
    writes: Sequence[str]  # files and folders below the world that hold all it makes
    others: Sequence[str] = ()  # options that stand for its own of that name and give other bytes
    redone: int | None = None  # units done again after `VerbLaws.change`; None: rows depend on all shards
    # has several passes, for each of which the scheduler processes starts anew: left out
    passes: bool = False
    replaces: bool = True  # refuses to replace files that it did not make, without --overwrite
    asks: bool = False  # refuses to replace its own files of other options too
    in_place: bool = False  # takes something out of its inputs: what is gone does not come back
    # has the stages of another case: left out where that one shows the same, unless THOROUGH=1 is in the environment
    repeats: bool = False

    def copy_world(self, world: Path, to: Path) -> Path:
        """Copy what the command names of a world: most of what a law costs is files that are copied and looked for."""
        named = re.findall(r"WORLD(?:/([^/:\s'\"]+))?", " ".join([self.words, *self.others]))
        kept = set(named) if all(named) else {path.name for path in world.iterdir()}
        to.mkdir(parents=True)
        for path in (path for path in world.iterdir() if path.name in kept):
            copy: Callable[..., Any] = shutil.copytree if path.is_dir() else shutil.copy2
            copy(path, to / path.name)
        return to

    def command(self, world: Path, *more: str) -> list[str]:
        """Return the words in a certain world; options in `more` stand for those of that name."""
        words = [part.replace("WORLD", str(world)) for part in shlex.split(self.words)]
        for option in (word for word in more if word.startswith("--") and word in words):
            at = words.index(option)
            end = next((n for n in range(at + 1, len(words)) if words[n].startswith("--")), len(words))
            del words[at:end]
        return [*words, *more]


def _cases(
    wanted: Callable[[Case], object] = lambda case: True, *, repeats: bool = True
) -> Callable[[Any], Any]:
    """Return a decorator that leaves out the cases for which a law is not meant, or those that repeat another."""

    def decorate(law: Any) -> Any:
        law.wanted = lambda case: wanted(case) and (repeats or THOROUGH or not case.repeats)
        return law

    return decorate


class Worlds(Struct, frozen=True):
    """A world before any of the commands ran, and one after all of them did."""

    before: Path
    after: Path
    expected: dict[str, dict[str, str]] = {}  # digests of what each case writes
    other: dict[str, dict[str, str]] = {}  # the same with its first other options
    counts: dict[str, Any] = {}  # of its summary
    operations: dict[str, int] = {}  # on files


CARD = "README.md"
"""Name of the card beside new documents, which is of no shard."""


def tree(folder: Path, below: Sequence[str] = ("",)) -> dict[str, str]:
    """Return the sha256 of every file of a folder, or of files and folders below it, except journals."""
    paths = sorted(path for top in below for path in _files(folder / top) if "_journal" not in path.parts)
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths
    }


def stamps(folder: Path) -> dict[Path, int]:
    """Return when every file and folder below a folder was changed."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def leftovers(folder: Path) -> list[str]:
    """Return everything below a folder that no finished run may leave: hidden files, journals included, and work folders."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("[._]*")
        if path.name not in ("_journal", "_quarantine", "_segments", "_tombstones")
    )


def staged_files(folder: Path) -> list[Path]:
    """Return the files in work folders that are not empty, except journals, leases and files that are not finished."""
    return sorted(
        path for work in folder.rglob("_work") for path in _files(work, "._") if path.stat().st_size
    )


def false_records(world: Path) -> list[str]:
    """Return the files that records of journals name, except those of work folders, and that are not there with their content."""
    roots = (path for path in world.rglob("_journal/*") if "_work" not in path.parts)
    named = [
        (path.parent.parent, record)
        for path in roots
        for record in Journal(str(path.parent.parent), path.name).records.values()
    ]
    return [
        str(root / file.path)
        for root, record in named
        for file in record.files
        if not record.stale and not _is_whole(root / file.path, file.checksum)
    ]


def _is_whole(path: Path, checksum: str) -> bool:
    return path.is_file() and files.checksum(str(path)) == checksum


def damage(paths: Sequence[Path], draw: random.Random, ways: Sequence[str]) -> None:
    """Damage each of some files in a way that is drawn."""
    before = {path: path.read_bytes() for path in paths}
    for path, stored in before.items():
        data, way = bytearray(stored), draw.choice(ways)
        beside = (other for at, other in before.items() if at.parent == path.parent)
        others = [other for other in beside if len(other) == len(data) and other != data]
        if way == "removed":
            path.unlink()
        elif way == "swapped" and others:
            path.write_bytes(draw.choice(others))
        elif way == "emptied":
            path.write_bytes(b"")
        elif way == "cut":
            path.write_bytes(data[: draw.randrange(len(data))])
        else:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            path.write_bytes(data)


def is_visible(path: Path, world: Path) -> bool:
    """Tell whether a file is one that readers look at: neither hidden nor in a journal or work folder."""
    parts = (part for part in path.relative_to(world).parts if part != "_segments")
    return not any(part[0] in "._" for part in parts)


@contextlib.contextmanager
def removals(world: Path) -> Iterator[set[str]]:
    """Yield the visible files of a world that this process removes, without those that a journal named before."""
    named, found, remove = set[Path](), set[str](), files.remove
    for folder in world.rglob("_journal/*"):
        root, journal = folder.parent.parent, Journal(str(folder.parent.parent), folder.name)
        announced = (prefix for run in journal.runs for prefix in run.writes)  # some are whole names of files
        named |= {root / path for path in (*journal.by_file(), *announced)}
    named |= set(world.rglob("segments/*/segment.json"))  # of an index, which name themselves

    def watched(url: str) -> None:
        path = Path(url)
        if path.exists() and path not in named and is_visible(path, world):
            found.add(url)
        remove(url)

    for module in (
        "ragged",
        "segments",
    ):  # whoever takes the function by its name has it before it is watched
        import_module(f"dolma_dask.sinks.{module}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "remove", watched)
        yield found


@contextlib.contextmanager
def running_at(place: str) -> Iterator[list[str]]:
    """Yield the options with which a command runs on a scheduler."""
    with contextlib.ExitStack() as stack:
        if place.startswith("cluster"):
            stack.enter_context(clusters.cluster("laptop", workers=int(place[-1])))
        elif place == "config":
            stack.enter_context(dask.config.set(scheduler="threading", num_workers=3))
        elif place == "active client":
            from distributed import Client

            small: dict[str, Any] = {"processes": False, "n_workers": 1, "dashboard_address": ":0"}
            stack.enter_context(Client(threads_per_worker=3, **small))
        yield ["--scheduler", place, "--workers", "2"] if place in PLACES[:2] else []


def displaced(world: Path, how: str) -> Path:
    """Move, copy or touch a world, which changes names or time stamps and no byte; return where it is now."""
    if how == "touch":
        for path in world.rglob("*"):
            path.touch()
        return world
    place = world.with_name("elsewhere") / "world"
    place.parent.mkdir()
    if how == "move":
        return world.rename(place)
    shutil.copytree(world, place, copy_function=shutil.copyfile)
    for path in (path for path in place.rglob("*") if path.is_file()):
        os.utime(path, ns=(10**18, 10**18 + path.stat().st_size))
    return place


class VerbLaws:
    """The laws of every verb; subclasses give `cases`, `make_world` and `change`."""

    cases: ClassVar[Mapping[str, Case]] = {}
    # a Python file that runs the commands as a process; default: ``python -m dolma_dask``
    script: ClassVar[str] = ""

    @classmethod
    def main(cls, words: list[str]) -> int:
        """Run a command in this process and return its exit status; it knows ``--json``, ``--dry-run``, ``--scheduler``, ``--workers``."""
        command: Callable[[list[str]], int] = load("dolma_dask.cli:main")
        return command(words)

    @classmethod
    def make_world(cls, world: Path) -> None:
        """Write what the commands read."""
        raise NotImplementedError("say what there is before the commands run")

    @classmethod
    def change(cls, world: Path) -> None:
        """Change inputs of all cases, and make again what they need between themselves and these."""
        raise NotImplementedError("say what changes")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a law for each case, by name."""
        if "name" in metafunc.fixturenames:
            wanted = getattr(metafunc.function, "wanted", lambda case: True)
            metafunc.parametrize("name", [name for name, case in self.cases.items() if wanted(case)])

    # ---------------------------------------------------------------------------------------------- worlds and commands

    @classmethod
    def make_worlds(cls, root: Path) -> Worlds:
        """Make a world before and one after all commands; both folders have one name, which some outputs hold."""
        worlds = Worlds(root / "before/world", root / "after/world")
        worlds.before.mkdir(parents=True)
        cls.make_world(worlds.before)
        shutil.copytree(worlds.before, worlds.after)
        for name, case in cls.cases.items():
            with counting(worlds.after) as operations:
                worlds.counts[name] = cls.run(case.command(worlds.after))["counts"]
            worlds.operations[name] = operations.count
            visible = [path for path in operations.opened if is_visible(Path(path), worlds.after)]
            assert not visible, f"{name} opens files for writing that readers can see: {visible}"
            worlds.expected[name] = tree(worlds.after, case.writes)
            assert worlds.expected[name], f"{name} wrote nothing to {case.writes}"
        assert leftovers(worlds.after) == []
        other = Path(shutil.copytree(worlds.before, root / "other/world"))
        for name, case in cls.cases.items():
            if case.others:
                worlds.other[name] = cls.fresh(name, other, *shlex.split(case.others[0]))
        return worlds

    @pytest.fixture(scope="class")
    @classmethod
    def worlds(cls, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
        """Return a world before and one after all commands."""
        return cls.make_worlds(tmp_path_factory.mktemp("worlds"))

    @pytest.fixture
    def world(self, worlds: Worlds, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
        """Return a world of one's own before any of the commands ran."""
        return self._copy(worlds.before, tmp_path / "world", request)

    @pytest.fixture
    def done(self, worlds: Worlds, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
        """Return a world of one's own in which all of them have run."""
        return self._copy(worlds.after, tmp_path / "done/world", request)

    def _copy(self, world: Path, to: Path, request: pytest.FixtureRequest) -> Path:
        """Copy a world; for the law of one command what it names."""
        if "name" in request.fixturenames:
            return self.cases[request.getfixturevalue("name")].copy_world(world, to)
        return Path(shutil.copytree(world, to))

    @classmethod
    def run(cls, words: Sequence[str], status: int = 0) -> dict[str, Any]:
        """Run a command in one process, without Dask's processes; return its summary, or what it says if it fails."""
        scheduler = [] if "--scheduler" in words else ["--scheduler", "synchronous"]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            found = cls.main([*words, *scheduler, "--json"])
        assert found == status, f"exit status {found} of {words}: {out.getvalue()}{err.getvalue()}"
        summary: dict[str, Any] = json.loads(out.getvalue()) if out.getvalue() else {}
        return {**summary, "said": err.getvalue()} if status else summary

    @classmethod
    def fresh(cls, name: str, world: Path, *more: str) -> dict[str, str]:
        """Return what a command writes in a world before it ran."""
        cls.run(cls.cases[name].command(world, *more))
        return tree(world, cls.cases[name].writes)

    def process(self, words: Sequence[str], log: Path, **environment: str) -> Command:
        """Start a command as a process group."""
        return Command([*([self.script] if self.script else []), *words], log, prepared=True, **environment)

    def check(self, name: str, world: Path, worlds: Worlds) -> None:
        """Check that a command has left what it must, and nothing else."""
        assert tree(world, self.cases[name].writes) == worlds.expected[name], name
        assert leftovers(world) == [], name

    # ---------------------------------------------------------------------------------------------- the same bytes

    @pytest.mark.parametrize("place", PLACES)
    def test_same_bytes_everywhere(self, place: str, world: Path, worlds: Worlds) -> None:
        """Not a byte depends on where tasks run, or on how many run at once. A verb of several passes starts them alike wherever a scheduler comes from."""
        with running_at(place) as options:
            for name, case in self.cases.items():
                if place != "threads" and (case.repeats or (case.passes and place != "cluster of 2")):
                    continue
                assert self.main([*case.command(world), *options, "--no-progress"]) == 0
                self.check(name, world, worlds)

    def die(self, name: str, world: Path, operation: int, log: Path, *more: str) -> bool:
        """Run a command that is killed before an operation on files; tell whether it came to that."""
        words = [*self.cases[name].command(world, *more), "--scheduler", "synchronous"]
        with self.process(words, log, **killed_at(max(operation, 1), world)) as command:
            status = command.wait()
        assert status in (0, -9), command.output
        return status != 0

    def go_on(self, name: str, world: Path, worlds: Worlds, *more: str) -> dict[str, Any]:
        """Run a command to its end: the bytes and counts of an undisturbed run."""
        summary = self.run(self.cases[name].command(world, *more))
        self.check(name, world, worlds)
        assert summary["counts"] == worlds.counts[name]
        return summary

    @_cases(repeats=False)
    def test_killed_and_gone_on_with(self, name: str, world: Path, worlds: Worlds, tmp_path: Path) -> None:
        """Whoever is killed, again and again, at whatever state of the disk, goes on."""
        draw, count = random.Random(f"{SEED} {name}"), worlds.operations[name]
        moments = [round(draw.uniform(0.1, 0.4) * count) for _ in range(2)]
        killed = [self.die(name, world, moment, tmp_path / "log") for moment in moments]
        assert killed[0], f"it ended before operation {moments[0]} of {count}"
        self.go_on(name, world, worlds)

    @_cases(repeats=False)
    def test_killed_at_its_end(self, name: str, world: Path, worlds: Worlds, tmp_path: Path) -> None:
        """Files are there of which no record speaks, or the records are and a work folder is left."""
        draw, count = random.Random(f"{SEED} {name} end"), worlds.operations[name]
        moment = count - draw.randrange(min(6, count // 2))
        while not self.die(name, world, moment, tmp_path / "log"):
            moment -= 3  # it was counted beside longer journals
            assert moment > count // 2
            shutil.rmtree(world)
            shutil.copytree(worlds.before, world)
        self.go_on(name, world, worlds)

    @_cases(lambda case: case.passes, repeats=False)
    def test_killed_and_damaged(self, name: str, world: Path, worlds: Worlds, tmp_path: Path) -> None:
        """Files that were staged may hold other bytes after a power failure, at the right size: nobody builds on them."""
        draw, count = random.Random(f"{SEED} {name} damage"), worlds.operations[name]
        for part in (0.3, 0.5, 0.7, 0.9):
            self.die(name, world, round(part * count), tmp_path / "log")
            damage(staged_files(world), draw, ("changed", "swapped"))
        self.go_on(name, world, worlds)

    @_cases(lambda case: case.passes, repeats=False)
    def test_damaged_between_two_passes(
        self, name: str, worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The same while the command runs, on a machine that lost its power, or by a worker that was taken for dead."""
        draw, do = random.Random(f"{SEED} {name} passes"), _Running._do
        for number in (1, 2, 3):
            place = self.cases[name].copy_world(worlds.before, tmp_path / f"{number}/world")
            steps: list[Any] = []

            def disturbed(
                running: Any, step: Any, place: Path = place, steps: list[Any] = steps, number: int = number
            ) -> Any:
                if isinstance(step, Pass | Plan):
                    steps.append(step)
                    if len(steps) == number + 1:
                        damage(staged_files(place), draw, ("changed", "emptied", "cut", "swapped", "removed"))
                return do(running, step)

            monkeypatch.setattr(_Running, "_do", disturbed)
            self.run(self.cases[name].command(place))
            self.check(name, place, worlds)

    def lose_power(self, name: str, world: Path, operation: int, log: Path) -> bool:
        """Run a command under which the power fails before an operation on files, or at its end; tell whether it ended."""
        words = [*self.cases[name].command(world), "--scheduler", "synchronous"]
        with self.process(
            words, log, **powerless_at(operation, world, f"{SEED} {name} {operation}")
        ) as command:
            status = command.wait()
        assert status in (0, -9), command.output
        return status == 0

    @_cases(repeats=False)
    def test_a_power_failure_loses_nothing_that_a_record_names(
        self, name: str, world: Path, worlds: Worlds, tmp_path: Path
    ) -> None:
        """At any moment, again, and at the end; what was not on disk may be there in part. The same command then goes on."""
        draw, count = random.Random(f"{SEED} {name} power"), worlds.operations[name]
        for moment in [*(draw.randrange(1, 2 * count) for _ in range(POWER_FAILURES)), NEVER]:
            ended = self.lose_power(name, world, moment, tmp_path / "log")
            if not self.cases[name].in_place or ended:
                assert not (false := false_records(world)), f"records name what is not there: {false}"
        assert self.go_on(name, world, worlds)["done"] == 0

    def disturbed(self, name: str, scheduler: str, world: Path, worlds: Worlds, log: Path) -> None:
        """Run a command of which a worker is killed; or that is killed itself, alone or with its workers, and gone on with."""
        words = [*self.cases[name].command(world), "--scheduler", scheduler, "--workers", "2"]
        draw, marks = random.Random(f"{SEED} {name} {scheduler}"), log.with_name("marks")
        marks.mkdir()
        worker = draw.random() < 0.5
        # without a cluster, workers see by themselves that it is gone
        group = draw.random() < 0.5 and scheduler == "cluster"
        at = held_at(draw.randrange(1, 4 if worker else 12), marks, world, workers=worker)
        with self.process(words, log, **at) as command:
            waiting = held(command, marks, world)
            if worker:
                waiting.kill()
                assert command.wait() == 0, command.output
            else:
                command.kill(group)
            command.wait_for_family()
        if worker:
            assert "Traceback" not in command.output, (
                "what Dask says about a killed worker is noise to the user"
            )
        else:
            self.go_on(name, world, worlds)
        self.check(name, world, worlds)

    @_cases(lambda case: case.passes, repeats=False)
    def test_killed_with_a_cluster(self, name: str, world: Path, worlds: Worlds, tmp_path: Path) -> None:
        """Nothing that runs in other processes outlives the command, and none of them is missed: several passes, on a cluster."""
        self.disturbed(name, "cluster", world, worlds, tmp_path / "log")

    @_cases(lambda case: not case.passes, repeats=False)
    def test_killed_with_processes(self, name: str, world: Path, worlds: Worlds, tmp_path: Path) -> None:
        """The same for the one pass of other verbs, in processes without a cluster: what a lost task means is the engine's, wherever it ran."""
        self.disturbed(name, "processes", world, worlds, tmp_path / "log")

    # ---------------------------------------------------------------------------------------------- nothing twice

    @pytest.mark.parametrize("how", ["move", "copy", "touch"])
    def test_what_is_done_starts_nothing(self, how: str, done: Path, worlds: Worlds) -> None:
        """Moving, copying and touching redo nothing; no scheduler is called, and earlier work counts. A copy has another place and other stamps, as each of the
        others has one of them: it is shown to every case.
        """
        place = displaced(done, how)
        for name, case in self.cases.items():
            if how != "copy" and case.repeats and not THOROUGH:
                continue
            if how == "copy":
                before = stamps(place)
                assert not self.run(case.command(place, "--dry-run"))["planned"], name
                assert stamps(place) == before, name
            summary = self.run(case.command(place, "--scheduler", NOWHERE))
            assert (summary["done"], summary["failed"]) == (0, 0), name
            assert summary["counts"] == worlds.counts[name], name
            self.check(name, place, worlds)

    def test_a_dry_run_writes_nothing(self, name: str, world: Path) -> None:
        """It names what it would do."""
        before = stamps(world)
        assert self.run(self.cases[name].command(world, "--dry-run"))["planned"]
        assert stamps(world) == before

    def test_changed_inputs_are_found(self, world: Path, done: Path) -> None:
        """Outputs that depend on them are made again, and nothing else: the bytes of a run on the changed inputs alone."""
        for place in (world, done):
            self.change(place)
        for name, case in self.cases.items():
            if case.in_place:
                continue
            wanted, summary = self.fresh(name, world), self.run(case.command(done))
            assert tree(done, case.writes) == wanted, name
            assert summary["done"] == (summary["done"] if case.redone is None else case.redone) > 0, name
            assert self.run(case.command(done))["done"] == 0, name
        assert leftovers(done) == []

    @_cases(lambda case: case.others)
    def test_other_options_make_all_anew(
        self, name: str, world: Path, done: Path, worlds: Worlds, tmp_path: Path
    ) -> None:
        """And back: no file of one run passes for one of the other, and a run removes only what its journal names."""
        leave = ["--overwrite"] if self.cases[name].asks else []
        for number, options in enumerate(self.cases[name].others):
            if number == 0:
                wanted = worlds.other[name]
            else:
                place = Path(shutil.copytree(world, tmp_path / f"{number}/world"))
                wanted = self.fresh(name, place, *shlex.split(options))
            with removals(done) as removed:
                summary = self.run(self.cases[name].command(done, *shlex.split(options), *leave))
            assert not removed, f"no record of its journal named what it removed: {removed}"
            assert (summary["skipped"] if self.cases[name].redone else not summary["done"]) == 0
            assert (tree(done, self.cases[name].writes), leftovers(done)) == (wanted, [])
            if leave:
                refused = self.run(self.cases[name].command(done), status=2)
                assert "--overwrite" in refused["error"]["message"]
                assert tree(done, self.cases[name].writes) == wanted
        self.go_on(name, done, worlds, *leave)
        if self.cases[name].replaces and (THOROUGH or not self.cases[name].repeats):
            self.go_on(name, done, worlds, "--overwrite")

    @_cases(lambda case: case.others, repeats=False)
    def test_what_other_options_left_is_not_used(
        self, name: str, world: Path, worlds: Worlds, tmp_path: Path
    ) -> None:
        """Nor when they were killed in the middle."""
        draw, options = random.Random(f"{SEED} {name} others"), shlex.split(self.cases[name].others[0])
        moment = round(draw.uniform(0.3, 0.8) * worlds.operations[name])
        assert self.die(name, world, moment, tmp_path / "log", *options)
        self.go_on(name, world, worlds)

    @_cases(lambda case: case.redone is not None)
    def test_only_prune_and_overwrite(self, name: str, world: Path, worlds: Worlds) -> None:
        """Shards can be requested by name and number, and be made again; a rehearsal names what is left."""
        command = self.cases[name].command
        planned = self.run(command(world, "--dry-run"))["planned"]
        first = sorted(planned, key=str.encode)[:2]
        assert len(planned) > 3
        shares = [self.run(command(world, "--dry-run", "--share", f"{n}/3"))["planned"] for n in (1, 2, 3)]
        assert sorted(path for share in shares for path in share) == sorted(planned)
        assert self.run(command(world, "--only", planned[0]))["done"] == 1
        assert self.run(command(world, "--prune", "2", "--overwrite"))["done"] == 2
        left = [path for path in planned if path not in (*first, planned[0])]
        assert self.run(command(world, "--dry-run"))["planned"] == left
        assert self.run(command(world, "--overwrite"))["skipped"] == 0
        self.check(name, world, worlds)

    # ---------------------------------------------------------------------------------------------- whole files or none

    @_cases(lambda case: not case.in_place)
    def test_lost_and_torn_files_are_made_again(self, name: str, done: Path, worlds: Worlds) -> None:
        """Those alone, where files do not depend on each other."""
        made = [path for path in sorted(worlds.expected[name]) if not path.endswith(f"/{CARD}")]
        files = [path for path in made if (done / path).stat().st_size > 9]
        torn = done / files[-1]
        for spoil in ((done / files[0]).unlink, lambda: torn.write_bytes(torn.read_bytes()[:-9])):
            spoil()
            summary = self.go_on(name, done, worlds)
            assert self.cases[name].redone is None or summary["done"] == 1

    @_cases(lambda case: case.replaces)
    def test_files_of_others_are_refused(self, name: str, world: Path, worlds: Worlds) -> None:
        """A file that another program wrote under the same name is replaced on request only."""
        made = (path for path in worlds.expected[name] if path.startswith(self.cases[name].writes[0]))
        first = next(path for path in made if not path.endswith(f"/{CARD}") and not (world / path).exists())
        (world / first).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(worlds.after / first, world / first)
        before = tree(world)
        for more in ([], ["--dry-run"]):
            refused = self.run(self.cases[name].command(world, *more), status=2)
            assert "--overwrite" in refused["error"]["message"]
            assert tree(world) == before
        self.run(self.cases[name].command(world, "--overwrite"))
        self.check(name, world, worlds)

    @_cases(repeats=False)
    def test_a_reader_sees_whole_files_only(
        self, name: str, done: Path, worlds: Worlds, tmp_path: Path
    ) -> None:
        """Every file that is visible at any moment is a complete one of this run, or of the one before, whose files it replaces."""
        case, seen = self.cases[name], dict[str, tuple[int, int]]()
        other = shlex.split([*case.others, "--overwrite"][0])
        allowed = {*worlds.expected[name].values(), *worlds.other.get(name, {}).values()}
        words = [*case.command(done, *other, *["--overwrite"] * case.asks), "--scheduler", "threads"]
        with self.process(words, tmp_path / "log", **SLOW_DISK) as command:
            while command.running():
                for path in (path for top in case.writes for path in _files(done / top, "._")):
                    with contextlib.suppress(FileNotFoundError):  # replaced or removed meanwhile
                        stamp = path.stat()
                        if seen.get(str(path)) != (stamp.st_mtime_ns, stamp.st_ino):
                            data = path.read_bytes()
                            assert hashlib.sha256(data).hexdigest() in allowed, f"{path}: {len(data)} bytes"
                            seen[str(path)] = (stamp.st_mtime_ns, stamp.st_ino)
                            _check_token_shard(path)
                time.sleep(0.004)
            assert command.wait() == 0, command.output
        assert seen

    @_cases(repeats=False)
    def test_two_commands_at_once_do_no_harm(
        self, name: str, world: Path, worlds: Worlds, tmp_path: Path
    ) -> None:
        """One comes and goes in the middle of the other: both work, or it says that the other does."""
        words = [*self.cases[name].command(world), "--scheduler", "synchronous"]
        marks = tmp_path / "marks"
        marks.mkdir()
        middle = held_at(worlds.operations[name] * 2 // 3, marks, world)
        with self.process(words, tmp_path / "a", **middle) as one:
            held(one, marks, world)
            with self.process(words, tmp_path / "b") as other:
                late = other.wait()
            (marks / RELEASED).touch()
            assert (one.wait(), late) in ((0, 0), (0, 2)), one.output + other.output
        self.check(name, world, worlds)
        assert self.run(self.cases[name].command(world, "--scheduler", NOWHERE))["done"] == 0

    @_cases(lambda case: case.others, repeats=False)
    def test_two_commands_with_other_options_at_once(
        self, name: str, world: Path, worlds: Worlds, tmp_path: Path
    ) -> None:
        """Never a mixture: the faster one says that the other is at work, or makes all anew when that has ended."""
        case, allowed = self.cases[name], (worlds.expected[name], worlds.other[name])
        other = shlex.split(case.others[0])
        words, watched = [*case.command(world), "--scheduler", "synchronous"], WatchedFiles(world)
        with self.process(words, tmp_path / "a", **SLOW_DISK) as one:
            wait_until(lambda: watched.count() > 2 or not one.running(), "files")
            later = case.command(world, *other, *["--overwrite"] * case.asks)
            with self.process([*later, *words[-2:]], tmp_path / "b") as two:
                statuses = sorted((one.wait(), two.wait()))
            said = one.output + two.output
        assert statuses in ([0, 0], [0, 2]), said
        assert statuses == [0, 0] or "expected one at a time" in said
        assert tree(world, case.writes) in allowed
        assert leftovers(world) == []


def _files(top: Path, hidden: str = "") -> Iterator[Path]:
    """Yield a file, or those of a folder whose folders may vanish meanwhile, without names that begin with a character of `hidden`."""
    if top.is_file():
        yield top
    for where, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name[0] not in hidden]
        yield from (Path(where, name) for name in names if name[0] not in hidden)


def _check_token_shard(path: Path) -> None:
    """Whoever sees the ids of a token shard sees all of it, and its segments."""
    if path.suffix in (".h5", ".npy", ".bin", ".ds", ".mds") and not path.name.endswith(".len.npy"):
        assert (path.parent / segments_path(path.name)).exists() or not path.exists()
    found = [files for files in FORMATS.values() if path.name.endswith(files.data)]
    if found and not path.name.endswith(".len.npy"):
        files = max(found, key=lambda one: len(one.data))
        stem = path.name.removesuffix(files.data)
        # files that were joined have no record of origin
        beside = [end for end in files.beside if end != SIDECAR or not stem.isdigit()]
        assert all(path.with_name(stem + end).exists() for end in beside) or not path.exists()
