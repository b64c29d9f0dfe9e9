"""cluster script and cluster check: what a profile submits, and what one small job of it finds."""

import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec.structs import replace

from dolma_dask.clusters.places import profile_client
from dolma_dask.clusters.profiles import Profile, read_profile
from dolma_dask.errors import UsageError
from dolma_dask.options.base import OUTPUT, Opt, Options
from dolma_dask.options.command import command
from dolma_dask.questions.cluster.findings import ClusterReport, report_of
from dolma_dask.questions.cluster.probe import look


@command
def cluster_script(profile: Annotated[str, Opt("slurm, lumi, or a YAML file with a profile.")], /) -> str:
    """Print the job script of a cluster profile, as it would be submitted for each of its jobs.

    Example: dolma-dask cluster script slurm

    Returns
    -------
    str
        The script; the address of the scheduler and the name of the job are known when they run.

    Raises
    ------
    UsageError
        The profile is wrong, or submits no jobs.
    """
    found = read_profile(profile)
    if found.kind != "slurm":
        raise UsageError(f"profile {profile}: `kind: {found.kind}` submits no jobs; expected `kind: slurm`.")
    from dolma_dask.clusters.slurm import job_script

    return job_script(found).rstrip("\n")


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Options):
    """Options of `cluster_check`."""

    group = OUTPUT

    folder: Annotated[
        str,
        Opt(
            "Where your data is, on storage that workers should see; a file is written there, read from the other side, and removed."
        ),
    ] = "."


@command
def cluster_check(
    profile: Annotated[str, Opt("slurm, lumi, allocation, laptop, or a YAML file with a profile.")],
    /,
    *,
    options: CheckOptions,
) -> ClusterReport:
    """Try a cluster profile with one small job, and say what to change; the job is cancelled in any case.

    Example: dolma-dask cluster check laptop --folder corpus

    Returns
    -------
    ClusterReport
        Versions, memory, scratch, clocks and the shared folder as this side and a worker see them.

    Raises
    ------
    UsageError
        The profile is wrong, or SLURM takes no such job.
    ClusterError
        The job ends before its worker has come; with the end of its log.
    """
    found = replace(read_profile(profile, _one_of(read_profile(profile))), tries=1)
    began = time.monotonic()
    with profile_client(found) as client:
        client.wait_for_workers(1)
        startup = time.monotonic() - began
        return _compare(found, startup, client, Path(options.folder).absolute())


def _one_of(profile: Profile) -> dict[str, Any]:
    """Return what makes a profile one small job of one worker, with the memory that a worker has otherwise."""
    return {"jobs": 1} if profile.kind == "slurm" else {"workers": 1} if profile.kind == "local" else {}


def _compare(profile: Profile, startup: float, client: Any, folder: Path) -> ClusterReport:
    """Look around on both sides; the files of the shared folder are removed."""
    names = [f".dolma-dask-check-{uuid.uuid4().hex}" for _ in range(2)]
    tokens = (uuid.uuid4().hex, uuid.uuid4().hex)
    try:
        first = look(str(folder), names[0], "", tokens[0])
        if first.folder_wrote:
            raise UsageError(
                f"{folder} cannot be written here ({first.folder_wrote}); expected a folder of yours: --folder."
            )
        worker = client.submit(look, str(folder), names[1], names[0], tokens[1], pure=False).result()
        here = look(str(folder), names[0], names[1], tokens[0])
        return report_of(profile, startup, (first, worker, here), str(folder), tokens)
    finally:
        for name in names:
            with suppress(OSError):
                (folder / name).unlink()
