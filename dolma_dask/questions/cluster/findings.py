"""Conclusions from two looks: lines for a table, and what to change."""

from collections.abc import Iterator
from typing import Any

import msgspec

from dolma_dask.clusters.profiles import Profile
from dolma_dask.questions.cluster.probe import Side
from dolma_dask.results.answer import Answer
from dolma_dask.results.parts import Heading, Notes, Part, Sentences
from dolma_dask.results.table import Column, Table

MAX_CLOCK_SECONDS = 2.0
"""Larger differences between clocks make time stamps of files misleading."""

MIN_SCRATCH = 2_000_000_000
"""Bytes: HDF5 files are written there before they are published."""

MEMORY_KINDS = ("tmpfs", "ramfs")
"""File systems whose files count as memory of the job."""

MIN_MEMORY = 1_000_000_000
"""Bytes of a worker below which most verbs cannot work on large records."""


class ClusterReport(Answer, frozen=True):
    """Findings of one small job; prints as a table."""

    profile: str
    startup: float  # seconds from the submission to the first worker
    rows: tuple[tuple[str, str, str], ...]  # what, here, on the worker
    changes: tuple[str, ...]  # what must be changed
    advice: tuple[str, ...] = ()  # what could be better
    worker: Side | None = None
    verb: str = "cluster check"

    @property
    def exit_status(self) -> int:
        """1 if something must be changed."""
        return 1 if self.changes else 0

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-able values."""
        return {
            "verb": self.verb,
            "profile": self.profile,
            "startup_seconds": round(self.startup, 2),
            "worker": msgspec.to_builtins(self.worker),
            "changes": list(self.changes),
            "advice": list(self.advice),
            "exit_status": self.exit_status,
        }

    def parts(self) -> Iterator[Part]:
        yield Heading(f"cluster check {self.profile}")
        yield Table("", [Column(name, "words") for name in ("", "here", "worker")], self.rows)
        yield Sentences([f"CHANGE: {change}" for change in self.changes])
        yield Notes(self.advice)
        yield Sentences([] if self.changes else ["nothing has to be changed"])


def report_of(
    profile: Profile,
    startup: float,
    looks: tuple[Side, Side, Side],
    folder: str,
    tokens: tuple[str, str],
) -> ClusterReport:
    """Compare both sides; `looks` are those of this side, of the worker, and of this side once more, `tokens` what this side and the worker wrote."""
    before, worker, here = looks
    ahead = worker.clock - min(max(worker.clock, before.clock), here.clock)  # a worker may take its time
    changes = (
        *_of_folder(worker, folder, tokens, here.folder_read),
        *_of_scratch(profile, worker),
        *_of_machine(here, worker, ahead),
    )
    rows = _rows(startup, here, worker, folder, ahead)
    return ClusterReport(profile.name, startup, rows, changes, tuple(_advice(worker)), worker)


def _rows(
    startup: float, here: Side, worker: Side, folder: str, ahead: float
) -> tuple[tuple[str, str, str], ...]:
    def size(value: int | None) -> str:
        return "not limited" if value is None else f"{value / 1e9:,.2f} GB"

    return (
        ("host", here.host, worker.host),
        ("start-up", "", f"{startup:.1f} s"),
        ("processors", f"{here.processors}", f"{worker.processors}"),
        ("memory of the job (SLURM)", "", size(worker.job_memory)),
        ("memory of a worker (Dask)", "", size(worker.dask_memory)),
        (
            "scratch",
            here.scratch,
            f"{worker.scratch}: {worker.scratch_free / 1e9:,.1f} GB free, {worker.scratch_kind}",
        ),
        ("shared folder", folder, "seen" if not worker.folder_wrote else "NOT WRITABLE"),
        ("kernels compiled", _yes(here.compiled), _yes(worker.compiled)),
        ("clock", "", f"{ahead:+.2f} s"),
        *((name, version, worker.versions.get(name, "none")) for name, version in here.versions.items()),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _of_folder(worker: Side, folder: str, tokens: tuple[str, str], seen: str) -> Iterator[str]:
    """Say what is wrong with the shared folder."""
    if worker.folder_wrote:
        yield f"the worker cannot write to {folder} ({worker.folder_wrote}). Work in a folder on storage that all nodes share."
    elif worker.folder_read != tokens[0] or seen != tokens[1]:
        yield (
            f"{folder} is not the same folder on {worker.host} as here: files written on one side are not seen on the other. Work in a folder on storage that all "
            "nodes share."
        )


def _of_scratch(profile: Profile, worker: Side) -> Iterator[str]:
    wanted = profile.over({}).jobqueue.get("local_directory") or ""
    if wanted and "$" not in wanted and not f"{worker.scratch}/".startswith(f"{wanted.rstrip('/')}/"):
        yield f"{profile.place_of('local_directory')}: {worker.host} has no folder {wanted} that may be written, and took {worker.scratch}. Name one that nodes have."


def _of_machine(here: Side, worker: Side, ahead: float) -> Iterator[str]:
    """Say what differs in versions and clocks, and what memory is too small."""
    for name, version in here.versions.items():
        if worker.versions.get(name) != version:
            yield f"{name} is {version} here and {worker.versions.get(name)} on the worker. Let `jobqueue.python` name the Python of this environment, on shared storage."
    memory, job_memory = worker.dask_memory, worker.job_memory
    if memory is not None and job_memory is not None and memory > job_memory:
        yield f"Dask lets a worker take {memory / 1e9:,.2f} GB, and SLURM kills the job at {job_memory / 1e9:,.2f} GB. Let `jobqueue.memory` and `job-mem` agree."
    if memory is not None and memory < MIN_MEMORY:
        yield (
            f"a worker has {memory / 1e9:,.2f} GB, and verbs need {MIN_MEMORY / 1e9:,.1f} GB or more. Raise `jobqueue.memory`, or ask for fewer `processes`."
        )
    if abs(ahead) > MAX_CLOCK_SECONDS:
        yield (
            f"the clocks differ by {abs(ahead):,.1f} s. Time stamps of files decide what is done again: ask your administrators to set them."
        )


def _advice(worker: Side) -> list[str]:
    found = []
    if worker.scratch_kind in MEMORY_KINDS:
        found.append(
            f"scratch {worker.scratch} is memory of the node ({worker.scratch_kind}), and counts as memory of the job; a disk is better: `jobqueue.local-directory`."
        )
    if worker.scratch_free < MIN_SCRATCH:
        found.append(
            f"scratch {worker.scratch} has {worker.scratch_free / 1e9:,.1f} GB left; `hdf5` writes files there before they are published: name a larger folder in `jobqueue.local-directory`."
        )
    if not worker.compiled:
        found.append(
            "kernels are not compiled where workers find them: call `dolma-dask warm-up` once, on a node of the same processor type."
        )
    return found
