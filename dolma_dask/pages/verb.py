"""report: one HTML page that shows what happened to a dataset, and the same content as JSON beside it.

The journals tell which verbs ran. One pass over the dataset that was selected from tells how its signals are distributed, where the rule
cuts, and which documents lie next to the cut. Drops of the rule are those that the journal has counted. Nothing else is taken on trust: documents
and attributes must line up, and be the files that the rule was applied to.

A page is a unit of the journal of the dataset that it shows, named by its path as seen from there. While the files below its datasets are the same by
size and time stamp, and the page and the JSON beside it are as they were written, the same command reads a listing and writes nothing.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from dolma_dask.dataset import Dataset
from dolma_dask.display import last_name
from dolma_dask.errors import UsageError
from dolma_dask.extras import require
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import canonical
from dolma_dask.metering import CpuClock
from dolma_dask.options.base import OUTPUT, Opt, recorded
from dolma_dask.options.command import command
from dolma_dask.options.groups import (
    DatasetLike,
    DatasetOptions,
    ShardOptions,
    check_outside,
    of_version,
    same,
    target_of,
)
from dolma_dask.ownership import dataset_notes
from dolma_dask.pages.history import lineage, public_name
from dolma_dask.pages.record import PageFiles, json_url, page_key
from dolma_dask.results.summary import Summary

if TYPE_CHECKING:
    from dolma_dask.pages.compare import ComparisonContent
    from dolma_dask.pages.content import DatasetContent


@dataclass(frozen=True, kw_only=True)
class ReportOptions(DatasetOptions, ShardOptions):
    """Options of `report`."""

    unrecorded = frozenset({"source", "ids_as_text"})

    to: Annotated[str, Opt("Path or URL of the page, ending in .html.", group=OUTPUT, convert=target_of)]
    compare: Annotated[
        DatasetLike | None,
        Opt(
            "Another version or run: the page shows what is different in `dataset`, signal by signal.",
            kind="str or Dataset",
            convert=same,
        ),
    ] = None
    tokens: Annotated[
        Sequence[str],
        Opt("Folders that ragged or hdf5 wrote from it, or from the dataset that it is compared with."),
    ] = ()
    title: Annotated[str | None, Opt("Heading of the page.")] = None
    examples: Annotated[
        int, Opt("Documents to show on each side of each bound of the rule.", convert=same)
    ] = 3


@command
def report(
    dataset: Annotated[
        DatasetLike,
        Opt(
            "Folder or URL with documents/ in it, usually the newest version. Earlier versions are found through its journal.",
            kind="str or Dataset",
            convert=same,
        ),
    ],
    /,
    *,
    options: ReportOptions,
) -> Summary:
    """Write one HTML page that shows what happened to a dataset, and its content as JSON beside it.

    Example: dolma-dask report corpus/wiki/v1 --to wiki.html --tokens out/ragged

    Returns
    -------
    Summary

    Raises
    ------
    UsageError
        `to` is no .html file, is one that is no report, or lies among the documents or attributes; or a folder of `tokens` has no journal;
        or an argument is unknown, or has a value that it cannot have.
    StageError
        Some shards could not be read, for example because attributes that the rule needs are stale; sets that it does not need are
        left out then, with a note.

    Notes
    -----
    While no file of the datasets has changed, the same command writes nothing.
    """
    require("bokeh", "the report")
    started, clock = time.monotonic(), CpuClock()
    target = _page_url(options)
    shown = tuple(_opened(dataset, target, options))
    params = options.params(to=target, compare=shown[0].dataset.root if len(shown) > 1 else None)
    canonical(params)  # what no journal can write is refused before anything is read
    listed = shown[-1].dataset
    page, notes, lost = PageFiles(listed.root, target, _key(shown, options)), dataset_notes(listed), None
    known = None if options.overwrite else page.unchanged()
    if known is None:
        content = _content(shown, options)
        if options.dry_run:
            notes = (*notes, *content.notes, content.would())
            return Summary("report", target, planned=content.shards, notes=notes)
        record = page.write(content.draw(options), started)
        lost = page.remember(record, params, clock.take())
    else:
        record = known
    shards = record.info["shards"]
    return Summary(
        "report",
        target,
        done=0 if known else shards,
        skipped=shards if known else 0,
        counts=record.counts,
        notes=(*notes, *record.info["notes"], *filter(None, [lost])),
        seconds=time.monotonic() - started,
    )


class _Shown(NamedTuple):
    """A dataset of the page, and its name as a reader should see it."""

    dataset: Dataset
    name: str


def _opened(dataset: DatasetLike, target: str, options: ReportOptions) -> Iterator[_Shown]:
    """Yield the datasets of the page, the older one first."""
    given = of_version(dataset, options.source, options.version)
    for one in (options.compare, given):
        if one is not None:
            opened = options.beside(one)
            check_outside(target, opened.root)
            yield _Shown(opened, _name(one, opened))


def _content(shown: Sequence[_Shown], options: ReportOptions) -> "DatasetContent | ComparisonContent":
    # brings Arrow and the questions along: not for --help, nor where the page is there
    from dolma_dask.pages.compare import comparison_content
    from dolma_dask.pages.content import dataset_content

    if len(shown) > 1:
        return comparison_content(shown[0], shown[1], options)
    return dataset_content(*shown[0], tuple(options.tokens), options)


def _key(shown: Sequence[_Shown], options: ReportOptions) -> str:
    """Return the digest of what decides the page, the same after its datasets were moved together."""
    chosen = ("title", "examples", "source", "only", "share", "prune")
    choices: dict[str, Any] = {name: recorded(getattr(options, name)) for name in chosen}
    choices["datasets"] = [
        [
            public_name(name),
            one.source,
            [shard.path for shard in one.shards],
            *([True] if one.ids_as_text else []),
        ]
        for one, name in shown
    ]
    roots = [root for one in shown for root in lineage(one.dataset.root)[0]]
    return page_key(choices, [*roots, *map(files.normalize, options.tokens)])


def _name(dataset: DatasetLike, listed: Dataset) -> str:
    """Return the dataset's name as the user gave it, if that is a relative path below here; else its root."""
    given = layout.dataset_root(dataset).removeprefix("./") if isinstance(dataset, str) else ""
    return listed.root if not given or "://" in given or given.startswith(("/", "~", ".")) else given


def _page_url(options: ReportOptions) -> str:
    """Return the URL of the page; refuse what is no page, and a file that is no report."""
    to = options.to
    if not to.endswith(".html") or last_name(to) == ".html":
        raise UsageError(
            f"to is {to!r}; expected the path or URL of a page that ends in .html, such as report.html."
        )
    target = files.normalize(to)
    signatures = ((target, b'content="dolma_dask '), (json_url(target), b'"format":"dolma_dask.'))
    for url, signature in signatures:
        if not options.overwrite and files.stat(url) and not _has(url, signature):
            raise UsageError(
                f"{url} is there and is no report of ours; expected a free path. Choose another name, or replace it with --overwrite."
            )
    return target


def _has(url: str, signature: bytes) -> bool:
    """Tell whether `signature` stands at the beginning of a file."""
    with files.open_read(url) as handle:
        return signature in handle.read(4096)
