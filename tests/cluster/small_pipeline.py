"""A small pipeline over all kinds of work, profiles of the clusters it runs on, and what it must leave."""

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import yaml
from small_world import ORDINARY, WILD, make_lines, make_raw, run_here, store

from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.testing.verb_laws import leftovers, tree

PIPELINE = """\
stages:
  - convert: {inputs: WORLD/raw, to: WORLD/v0, id: key, text: body, source: web}
  - tag: {dataset: WORLD/v0, taggers: [gopher_v2, char_length_v1]}
  - dedupe: {dataset: WORLD/v0, how: fuzzy}
  - mix: {dataset: WORLD/v0, to: WORLD/v1, where: word_count >= 5 and fuzzy is None}
  - ragged: {dataset: WORLD/v1, to: WORLD/tokens, tokenizer: WORLD/tokenizer.json}
  - hdf5: {dataset: WORLD/v1, to: WORLD/rows, tokenizer: WORLD/tokenizer.json, max_seq_length: 64, eos_id: 7, pad_id: 7}
"""

MADE = ("v0", "v1", "tokens", "rows")
PHASES = {"map": "v0/attributes/gopher_v2", "exchange": "v0/_work/dedupe-fuzzy", "HDF5": "/rows/"}
"""Parts of paths that workers write in each phase."""


class Pipeline:
    """The pipeline in a folder of its own, whose name and place no output holds.

    Parameters
    ----------
    folder : Path
        What is read is there; see `make`.
    expected : dict
        Digests of what it must leave.
    """

    def __init__(self, folder: Path, expected: dict[str, str]) -> None:
        self.folder = folder
        self._expected = expected
        self.file = folder.parent / "pipeline.yaml"
        self.file.write_text(PIPELINE.replace("WORLD", str(folder)))

    @classmethod
    def make(cls, folder: Path) -> "Pipeline":
        """Make what is read, run the pipeline in this process, and keep what it leaves."""
        folder.mkdir(parents=True)
        make_raw(folder / "raw", 7)
        draw = random.Random(5)
        lines = [json.loads(line) for line in make_lines(draw, 200, "near")]
        rows = [
            {"key": f"{number}-{copy}", "body": line["text"] + " and one more" * copy}
            for number, line in enumerate(lines)
            for copy in range(2)
        ]
        store(folder / "raw/dump/near.jsonl.gz", [json.dumps(row).encode() + b"\n" for row in rows])
        train_tokenizer(ORDINARY + WILD, folder / "tokenizer.json", 300)
        before = shutil.copytree(folder, folder.parent / "before")
        pipeline = cls(folder, {})
        assert run_here(pipeline.words()) == 0
        made = cls(before, tree(folder, MADE))
        assert all(any(path.startswith(part) for path in made._expected) for part in MADE)
        return made

    def copy(self, place: Path) -> "Pipeline":
        """Return the pipeline in another folder, before it ran."""
        return Pipeline(Path(shutil.copytree(self.folder, place / "world")), self._expected)

    def words(self, *more: str) -> list[str]:
        """Return the command."""
        return ["run", str(self.file), *more]

    def phases(self) -> dict[str, Path | str]:
        """Return a part of the paths that workers write, by phase."""
        return {name: f"{self.folder.name}/{part.strip('/')}" for name, part in PHASES.items()}

    @property
    def first(self) -> str:
        """A part of the paths that workers write first."""
        return f"{self.folder.name}/v0/documents"

    def check(self, ended: int | None = None) -> None:
        """Check that it has left what it must, byte by byte, and nothing else, but for hidden files of a process that has `ended` after the run was done with it."""
        found = tree(self.folder, MADE)
        others = {path for path in found | self._expected if found.get(path) != self._expected.get(path)}
        assert not others, f"other bytes, missing or more than it must leave: {sorted(others)}"
        assert [path for path in leftovers(self.folder) if f"-{ended}-" not in path] == []


def store_profile(place: Path, **changes: Any) -> Path:
    """Write the profile of two small jobs, with other values of its own or of its jobqueue; None leaves one out."""
    jobqueue = {
        "cores": 1,
        "processes": 1,
        "memory": "1GB",
        "walltime": "00:10:00",
        "queue": "main",
        "interface": "lo",
        "local-directory": str(place / "scratch"),
        "log-directory": str(place / "jobs"),
        "death-timeout": 60,
    }
    (place / "scratch").mkdir(exist_ok=True)
    profile: dict[str, Any] = {"kind": "slurm", "jobs": 2}
    for name, value in changes.items():
        own = profile if name in ("kind", "jobs", "base") else jobqueue
        own[name.replace("_", "-")] = value
    profile["jobqueue"] = {name: value for name, value in jobqueue.items() if value is not None}
    path = place / "profile.yaml"
    path.write_text(yaml.safe_dump(profile))
    return path


def logs_of_jobs(place: Path) -> str:
    """Return what the jobs of a profile have said, for the messages of tests."""
    logs = sorted((place / "jobs").glob("*"))
    return "".join(f"\n{log.name}:\n{log.read_text(errors='replace')[-2000:]}" for log in logs)


def send_all(processes: list[psutil.Process], number: int) -> None:
    """Send a signal to processes; those that are gone do not matter."""
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
