"""Options that nearly all commands share: the shards that are worked on, and where it runs; and what a dataset may be given as.

Records that cannot be read are the matter of `records`, rules over documents of `kept`: a command that has neither starts without Arrow.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Annotated, Any

from dolma_dask.dataset import Dataset, open_dataset, version_root
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.layout import FileFormat
from dolma_dask.io import files
from dolma_dask.options.base import OUTPUT, WHAT, WHERE, Opt, Options, nothing_in, words_of
from dolma_dask.ownership import check_budget
from dolma_dask.results.summary import Summary

DatasetLike = str | Dataset | Summary
"""A folder or URL, an open dataset, or the summary of the verb that wrote it."""

TokensLike = str | Mapping[str, Any] | None
"""Options of `ragged` or `hdf5` of a mix, ``to`` and ``tokenizer`` among them, also as JSON text."""

SeveralTokensLike = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None
"""The same for several outputs of one kind."""


def same(value: Any) -> Any:
    """Return a value as it is: `Options.check`, or what it is handed to, says what it may be."""
    return value


def _only(value: Any) -> tuple[str, ...] | None:
    words = None if value is None else words_of("only", value)
    if words == ():
        raise nothing_in("only")
    return words


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(Options):
    """Options for the place of the work and for its display; all that is needed of them by a question, which writes nothing beside what it reads."""

    group = WHERE
    unrecorded = frozenset({"scheduler", "workers", "cluster", "progress"})

    scheduler: Annotated[
        str | None,
        Opt(
            "auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.",
            convert=same,
        ),
    ] = None
    workers: Annotated[
        int | None,
        Opt(
            "Processes or threads; by default one per processor.",
            min=1,
            expected="a number of processes or threads from 1 on",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        Opt(
            "Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.",
            convert=same,
        ),
    ] = None
    progress: Annotated[bool, Opt("Show a progress bar.", convert=bool)] = True

    def check(self) -> None:
        """Refuse a cluster that cannot be."""
        super().check()
        if self.cluster is not None:
            from dolma_dask.clusters import check_cluster  # reads profiles, which most runs have none of

            check_cluster(self.cluster, self.scheduler, self.workers)


@dataclass(frozen=True, kw_only=True)
class RunOptions(PlaceOptions):
    """Options for the way and place of a run; none of them changes a byte of what a command writes."""

    group = OUTPUT
    unrecorded = frozenset({"overwrite", "dry_run"})

    overwrite: Annotated[
        bool,
        Opt(
            "Do everything again, and replace what is there: of other options too, or not made by this tool.",
            is_flag=True,
        ),
    ] = False
    dry_run: Annotated[bool, Opt("Say what would be done, and do nothing.", is_flag=True)] = False


@dataclass(frozen=True, kw_only=True)
class SelectionOptions(Options):
    """The shards that are worked on."""

    group = WHAT
    unrecorded = frozenset({"only", "share", "prune"})

    only: Annotated[
        Sequence[str] | None,
        Opt("Only shards whose path contains this, or matches it as a shell pattern.", convert=_only),
    ] = None
    share: Annotated[
        str | None,
        Opt(
            "Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.",
            convert=same,
        ),
    ] = None
    prune: Annotated[int | None, Opt("Only the first N shards, to try a command.", convert=same)] = None

    def selected(self, dataset: Dataset) -> Dataset:
        """Return the shards of a dataset that ``only``, ``share`` and ``prune`` leave."""
        return dataset.select(tuple(self.only or ()), self.prune, self.share)


@dataclass(frozen=True, kw_only=True)
class ShardOptions(SelectionOptions, RunOptions):
    """`RunOptions`, and the shards that are worked on."""


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(SelectionOptions, PlaceOptions):
    """`PlaceOptions`, and the shards that a question is about."""


@dataclass(frozen=True, kw_only=True)
class SkipOptions(Options):
    """The files among those that a command is given which hold no documents."""

    group = WHAT
    unrecorded = frozenset({"skip"})

    skip: Annotated[
        Sequence[str],
        Opt(
            "Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README '*.pdf'. Others of no known kind are an error.",
            convert=lambda value: words_of("skip", value),
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class IdOptions(Options):
    """The form of the ids of documents."""

    group = WHAT

    ids_as_text: Annotated[
        bool,
        Opt(
            'Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.',
            is_flag=True,
        ),
    ] = False

    def params(self, **others: Any) -> dict[str, Any]:
        """Return the options as journals keep them; ids are not mentioned unless numbers among them are read."""
        known = super().params(**others)
        return known if self.ids_as_text else {k: v for k, v in known.items() if k != "ids_as_text"}


@dataclass(frozen=True, kw_only=True)
class DatasetOptions(IdOptions, SkipOptions):
    """Options for the origin of a dataset's documents."""

    group = WHAT
    unrecorded = frozenset({"version"})

    source: Annotated[
        str | None,
        Opt(
            "Source of all documents, for files that lack the field; with `version`, the name of its folder too."
        ),
    ] = None
    version: Annotated[
        str | None,
        Opt(
            "With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line the root may "
            "be left out if DOLMA_DASK_ROOT of the environment names it."
        ),
    ] = None

    def open(self, dataset: DatasetLike) -> Dataset:
        """Return a dataset for what a call names; refuse files that nobody reads, and one that is over its budget of bad records."""
        return self.beside(dataset, self.version, getattr(self, "only", None) or ())

    def beside(self, dataset: DatasetLike, version: str | None = None, only: Sequence[str] = ()) -> Dataset:
        """Return another dataset of the call, read in the same way."""
        return as_dataset(dataset, self.source, version, self.skip, only, ids_as_text=self.ids_as_text)


Format = Annotated[
    FileFormat | None,
    Opt("Format of the attribute files; by default that of the document file.", group=OUTPUT),
]
"""Format of the attribute files that a command writes."""

Documents = Annotated[
    DatasetLike, Opt("Folder or URL with documents/ in it.", kind="str or Dataset", convert=same)
]
"""The dataset that a command reads."""

WithAttributes = Annotated[
    DatasetLike,
    Opt("Folder or URL with documents/ and attributes/ in it.", kind="str or Dataset", convert=same),
]
"""The dataset that a command reads with its attributes."""

PublishedDocuments = Annotated[
    DatasetLike,
    Opt(
        "Folder or URL with documents/ in it, whose ids are those of RedPajama-V2 (convert --mapping redpajama_v2 makes them).",
        kind="str or Dataset",
        convert=same,
    ),
]
"""The dataset of a command that meets published tables by their ids."""


def target_of(to: object) -> str:
    """Return the path or URL of a file to write; refuse what is neither."""
    if not isinstance(to, str | PathLike):
        raise UsageError(f"to={to!r} is of type {type(to).__name__}; expected the path or URL of a file.")
    return str(fspath(to))


def as_dataset(
    dataset: DatasetLike,
    source: str | None = None,
    version: str | None = None,
    skip: Sequence[str] = (),
    only: Sequence[str] = (),
    *,
    ids_as_text: bool = False,
) -> Dataset:
    """Return a dataset for a URL, a dataset, or the summary of the verb that wrote it; refuse files that nobody reads, among those that `only` asks
    for, and one that is over its budget of bad records.
    """
    opened = _opened(of_version(dataset, source, version), source, skip)
    opened = opened.with_ids_as_text() if ids_as_text else opened
    opened.check_all_read(only)
    check_budget(opened.root)
    return opened


def _opened(dataset: DatasetLike, source: str | None, skip: Sequence[str]) -> Dataset:
    if isinstance(dataset, Dataset):
        return dataset.without(skip).with_current_attributes()
    target = dataset.target if isinstance(dataset, Summary) else fspath(dataset)
    return open_dataset(target, source=source, skip=skip)


def of_version(dataset: DatasetLike, source: str | None, version: str | None) -> DatasetLike:
    """Return the root of the dataset that `version` of a source names; without a version `dataset` itself."""
    if not isinstance(dataset, str | PathLike | Summary | Dataset):
        raise UsageError(
            f"the dataset is of type {type(dataset).__name__}; expected a folder or URL, an open dataset, or the summary of a verb."
        )
    if version is None:
        return dataset
    if not isinstance(dataset, str | PathLike):
        raise UsageError(
            "`version` is of a root with sources/<source>/<version> in it; expected the path or URL of that root."
        )
    return version_root(fspath(dataset), source, version)


NO_SHARD = "no shard is left to read: a share may be empty where there are fewer shards than shares"
"""Message about a call that has nothing to read."""


def check_outside(target: str, *roots: str) -> None:
    """Refuse other files among the documents and attributes of datasets, where readers would take them for such."""
    for root in roots:
        folders = [files.resolved(files.join(root, name)) for name in (layout.DOCUMENTS, layout.ATTRIBUTES)]
        if any(f"{files.resolved(target)}/".startswith(f"{folder}/") for folder in folders):
            raise UsageError(
                f"{target} lies among the documents or attributes of {root}; expected another folder or URL."
            )


_OF_DATASET = (
    layout.DOCUMENTS,
    layout.ATTRIBUTES,
    layout.CLUSTERS,
    layout.JOURNAL,
    layout.QUARANTINE,
    layout.WORK,
)


def datasets_above(target: str) -> Iterator[str]:
    """Yield the roots of the datasets whose folders the path of a target goes through."""
    place = files.resolved(target)
    for folder in re.finditer(rf"/({'|'.join(_OF_DATASET)})(?=/|$)", place):
        root = place[: folder.start()]
        if root and _is_dataset(set(files.list_folders(root))):
            yield root


def _is_dataset(folders: set[str]) -> bool:
    return layout.DOCUMENTS in folders and not folders.isdisjoint((layout.ATTRIBUTES, layout.JOURNAL))
