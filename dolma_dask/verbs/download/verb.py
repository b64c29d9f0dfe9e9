"""download: objects of the web or of a store -> files below a folder, whole or not at all, at the paths that they are published under.

Each object is a unit with a record: its size, its tag at the source, the checksum of its bytes. What is recorded and there is not asked for again, unless with
`refresh`. Memory: a MiB for each connection, and a few hundred bytes for each object.
"""

import dataclasses
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec.structs import asdict, replace

import dolma_dask
from dolma_dask import engine
from dolma_dask.dataset import matches, share_of
from dolma_dask.display import byte_size, counted
from dolma_dask.engine import Input, Plan, Task, Unit, resume
from dolma_dask.errors import InterruptedStageError, StageError, StoreError, UsageError
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.objects import Version, shown
from dolma_dask.io.partial import remove_outdated, set_free
from dolma_dask.io.web import Web
from dolma_dask.journal import Journal, Record
from dolma_dask.options.base import ABOVE_0, OUTPUT, Opt, without_empty
from dolma_dask.options.command import command
from dolma_dask.options.groups import RunOptions, ShardOptions
from dolma_dask.progress import one_display
from dolma_dask.results.summary import Summary
from dolma_dask.verbs.download.selection import RedPajamaSelection, Wanted, wanted_of
from dolma_dask.verbs.download.space import MAX_ASKED, ask, check_room, sizes
from dolma_dask.verbs.download.stage import (
    DownloadStage,
    Handling,
    key_of,
    sentences,
    write_lists,
)

MAX_PREFIXES = 400
"""Folders that a run announces; more are put together."""


@dataclass(frozen=True, kw_only=True)
class DownloadOptions(ShardOptions):
    """Options of `download`."""

    to: Annotated[
        str,
        Opt(
            "Folder or URL to write to. Files keep the paths that they are published under: documents/2023-06/0000/de_head.json.gz.",
            group=OUTPUT,
        ),
    ]
    snapshots: Annotated[
        Sequence[str], Opt("Snapshots of RedPajama-V2, such as 2023-06; in the web they must be given.")
    ] = ()
    languages: Annotated[Sequence[str], Opt("Languages: de, en, es, fr, it; by default all.")] = ()
    buckets: Annotated[
        Sequence[str],
        Opt(
            "Buckets of quality: head, middle, tail; by default of a listing head and middle, of a list of URLs all."
        ),
    ] = ()
    components: Annotated[
        Sequence[str], Opt("Components: documents, quality_signals, minhash, duplicates; by default all.")
    ] = ()
    base: Annotated[
        str | None,
        Opt(
            "URL that other files keep their paths below, and that the shards of a listing of yours lie below."
        ),
    ] = None
    connections: Annotated[int, Opt("Connections at once to one host, and files at once.", min=1)] = 8
    on_missing: Annotated[
        Handling, Opt("What to do where the source has no such file (404): list it, or fail.")
    ] = "record"
    on_broken: Annotated[Handling, Opt("The same for files that are damaged at the source.")] = "fail"
    refresh: Annotated[
        bool,
        Opt(
            "Ask the source about every file, and fetch what has changed there; by default what was fetched stays."
        ),
    ] = False
    redirects_to: Annotated[
        Sequence[str],
        Opt(
            "Other hosts that may send the files when their server redirects to them, such as cdn.example.org or '*.example.org'; '*': any. One with a private "
            "address has to be named in full."
        ),
    ] = ()
    timeout: Annotated[
        float,
        Opt(
            "Seconds without a byte after which a connection is made anew.",
            min=ABOVE_0,
            expected="more than 0",
        ),
    ] = 30.0
    patience: Annotated[
        float,
        Opt("Seconds without an answer after which a host is given up.", min=ABOVE_0, expected="more than 0"),
    ] = 300.0

    @property
    def selection(self) -> RedPajamaSelection:
        """Selection from RedPajama-V2."""
        words = (self.snapshots, self.languages, self.buckets, self.components)
        return RedPajamaSelection(*map(tuple, words))

    @property
    def root(self) -> str | None:
        """URL that files keep their paths below."""
        return None if self.base is None else files.normalize(self.base)

    @property
    def server(self) -> Web:
        """Reader of sources."""
        return Web(self.connections, self.timeout, self.patience, tuple(self.redirects_to))


@command
def download(
    inputs: Annotated[
        Sequence[str] | str,
        Opt(
            "Lists of URLs (.txt); trees as RedPajama-V2 publishes them, https://data.together.xyz/redpajama-data-v2/v1.0.0, which have listings "
            "(in a store they need none); listings of such trees; or URLs of files."
        ),
    ],
    /,
    *,
    options: DownloadOptions,
) -> Summary:
    """Fetch published files over http(s) or from any store: each is whole, proved, and goes on where it broke off.

    Example: dolma-dask download urls/minhash-urls.txt --to raw/rpv2 --snapshots 2023-06 --languages de

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some files could not be fetched; all others are there.
    StoreUnreachableError
        A host does not answer any more. The same command goes on later.
    DiskFullError
        The files do not fit; nothing was fetched.
    UsageError
        Nothing is selected, or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Files that are missing or broken at the source are listed below _quarantine/download/ of the target. gzip and zstd data are inflated to their ends, and footers of Parquet
    files are read. A login is taken from ~/.netrc; a URL that holds one is refused, and queries of URLs are shown nowhere.
    """
    target = files.normalize(options.to)
    _check_outside(inputs, target)
    base, selection, source = options.root, options.selection, options.server
    wanted = wanted_of(source, inputs, base, selection)
    wanted = _requested(wanted, options)
    origin = resume.origin_of(target, _origin(wanted))
    stage = DownloadStage(target, origin, source, options.on_missing, options.on_broken)
    with one_display(stage.verb):
        plan, is_estimate = _planned(stage, wanted, options.refresh, options.progress)
        plan = replace(plan, params={"inputs": _shown_inputs(inputs, base, selection)})
        return _run(
            plan, dataclasses.replace(options, workers=options.workers or options.connections), is_estimate
        )


def _check_outside(inputs: Sequence[str], target: str) -> None:
    """Refuse to fetch a folder into itself: the next run would fetch what this one has written."""
    for item in inputs:
        if f"{files.resolved(target)}/".startswith(
            f"{files.resolved(files.normalize(item))}/"
        ) and target != files.normalize(item):
            raise UsageError(f"{target} lies in {item}, which is fetched; expected another folder or URL.")


def _planned(
    stage: DownloadStage, wanted: Sequence[Wanted], refresh: bool, progress: bool
) -> tuple[Plan, bool]:
    """Return the plan, and whether sizes in it are estimates; `progress` shows how far the questions for them are."""
    known = {} if refresh else _trusted(stage, wanted)
    unknown = [one for one in wanted if one.path not in known]
    asked = ask(stage.source, unknown, len(unknown) if refresh else MAX_ASKED, progress)
    plan = Plan(
        stage=stage,
        root=stage.target,
        tasks=_tasks(stage, wanted, known, asked),
        params={},
        writes=_prefixes(wanted),
        options_key="download",
        version=dolma_dask.__version__,
        origin=_origin(wanted),
    )
    return plan, len(asked) < len(unknown)


def _run(plan: Plan, run: RunOptions, is_estimate: bool) -> Summary:
    """Fetch what is left, if there is room for it, and list what is not there."""
    note = _check_room(plan, run, is_estimate)
    try:
        ran = engine.run(plan, run)
    except (StageError, StoreError, InterruptedStageError):
        write_lists(plan.root)
        raise
    if not run.dry_run:
        write_lists(plan.root)
        remove_outdated(plan.root, plan.writes)
    return replace(ran.summary, notes=(*ran.summary.notes, *note, *sentences(plan.root, ran.records)))


def _requested(wanted: list[Wanted], options: ShardOptions) -> list[Wanted]:
    """Return the objects that ``only``, ``share`` and ``prune`` leave."""
    only, prune = options.only or (), options.prune
    if prune is not None and prune < 1:
        raise UsageError(f"prune={prune} leaves no file; expected 1 or more.")
    kept = [one for one in wanted if not only or matches(one.path, only)]
    if not kept:
        raise UsageError(f"no file matches {' '.join(only)!r}; the first is {wanted[0].path!r}.")
    return list(share_of(kept, options.share))[:prune]


def _origin(wanted: Sequence[Wanted]) -> str:
    """Return the tree that all objects come from; empty if there are several."""
    found = {shown(one.url).removesuffix(f"/{one.path}") for one in wanted}
    return found.pop() if len(found) == 1 else ""


def _trusted(stage: DownloadStage, wanted: Sequence[Wanted]) -> dict[str, Record]:
    """Return the records of objects about which the source is not asked again."""
    records = Journal(stage.target, stage.verb).records
    found = {one.path: records[one.path] for one in wanted if one.path in records}
    return {path: record for path, record in found.items() if stage.is_trusted(record)}


def _tasks(
    stage: DownloadStage,
    wanted: Sequence[Wanted],
    known: Mapping[str, Record],
    asked: Mapping[str, Version | None],
) -> list[Task]:
    """Return the work on each object: as it is recorded, or as its source says that it is now."""
    expected = sizes([one for one in wanted if one.path not in known], asked)
    tasks = []
    for one in wanted:
        record, version = known.get(one.path), asked.get(one.path, Version())
        if record is not None:
            infos = [FileInfo(of.path, of.bytes, of.stamp) for of in record.inputs]
        elif version is None and stage.on_missing == "record":
            infos = []
        else:
            infos = [FileInfo(one.path, expected[one.path], version.stamp if version else "")]
        unit = Unit(one.path, key_of(one.url, infos[0].stamp if infos else ""))
        tasks.append(Task(one.path, (unit,), tuple(Input(one.url, info) for info in infos), one))
    return tasks


def _prefixes(wanted: Sequence[Wanted]) -> tuple[str, ...]:
    """Return the folders that hold all files: two levels of them, or fewer where these are many."""
    found: set[str] = set()
    for levels in (2, 1, 0):
        parts = (posixpath.dirname(one.path).split("/")[:levels] for one in wanted)
        found = {"".join(f"{part}/" for part in each if part) for each in parts}
        if len(found) <= MAX_PREFIXES:
            break
    return tuple(sorted(found))


def _shown_inputs(inputs: Sequence[str], base: str | None, selection: RedPajamaSelection) -> dict[str, Any]:
    given = {name: list(words) for name, words in asdict(selection).items()}
    return without_empty({"from": [shown(item) for item in inputs], "base": base, **given})


def _check_room(plan: Plan, run: RunOptions, is_estimate: bool) -> tuple[str, ...]:
    """Check that what is left fits, before anything is fetched; of a rehearsal return how much it is."""
    held = {} if run.dry_run else set_free(plan.root, plan.writes)
    state = resume.look_back(plan, run.overwrite)
    there = sum(state.existing.get(task.shard, 0) + held.get(task.shard, 0) for task in state.left)
    needed = sum(task.bytes for task in state.left) - there
    if run.dry_run:
        about = "about " if is_estimate else ""
        return (f"{about}{byte_size(needed)} to fetch in {counted(len(state.left), 'file')}",)
    check_room(plan.root, needed, len(state.left), is_estimate)
    return ()
