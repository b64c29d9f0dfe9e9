"""remove: take documents down, everywhere below a root, and keep them out of what is written later.

Tombstones come first; then each file that holds one of the documents is written again without it, and journals speak of the files as they are now. Cost: all
documents are read once; affected files are written once. Memory: a few blocks per worker and 200 bytes for each entry of the list.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Annotated

from msgspec.structs import replace

from dolma_dask.engine import lease
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.id_keys import IdList, list_keys
from dolma_dask.io.id_lists import check_list
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import RunOptions, same
from dolma_dask.reading.tombstones import tombstones_at, upwards
from dolma_dask.verbs.remove import staged
from dolma_dask.verbs.remove.changes import WORK, Work
from dolma_dask.verbs.remove.listing import Listing
from dolma_dask.verbs.remove.summary import Removal
from dolma_dask.verbs.remove.takedown import Takedown, has_all


@dataclass(frozen=True, kw_only=True)
class RemoveOptions(RunOptions):
    """Options of `remove`."""

    unrecorded = frozenset({"ids"})

    ids: Annotated[
        str,
        Opt(
            'A file with an id per line, or source, tab and id; .jsonl with "id" and perhaps "source"; .csv, .tsv or .parquet with a column id and '
            "perhaps source; each also .gz or .zst. An id without source stands for that id in every source.",
            convert=same,
        ),
    ]
    reason: Annotated[str, Opt("Why, for the tombstones and the receipt.")] = ""
    hashed: Annotated[
        bool,
        Opt(
            "Write tombstones without ids in clear, as digests alone; the receipt names none either.",
            is_flag=True,
            group=OUTPUT,
        ),
    ] = False


@command
def remove(
    root: Annotated[
        str,
        Opt("Folder or URL of a dataset, or with datasets and token files below it.", convert=same),
    ],
    /,
    *,
    options: RemoveOptions,
) -> Removal:
    """Take documents down: out of all datasets, attributes and token files below a root, and out of what is written there later.

    Example: dolma-dask remove corpus --ids takedown.txt --reason "request 17"

    Returns
    -------
    Removal
        Each file that was changed, what was searched in vain, and what is left to do.

    Raises
    ------
    BadRecordError, CorruptFileError, SchemaError
        The list cannot be read; the message names the line.
    UsageError
        There is no such folder, or another run works below it; or an argument is unknown or has a value that it cannot have.

    Notes
    -----
    Files are replaced one by one, each whole; those that hold none of the documents stay as they are. The exit status is 1 while something is left: files that
    could not be read, or that this command cannot change, such as token files of other tools. The receipt says what to do. `mix`, `transform`, `convert`, `ragged` and `hdf5` leave documents with a
    tombstone out of what they write to or from below the root, and count them.
    """
    started = time.monotonic()
    url, listed = _root_of(root), _list_of(options.ids)
    listing = Listing.of(url)
    if not listing.infos:
        raise UsageError(
            f"{url} holds no file; expected a folder or URL with datasets or token files at or below it. Correct the path.",
            root=url,
        )
    given = listed, options, options.reason
    if options.dry_run:
        done = Takedown(listing, *given, hashed=options.hashed).rehearse()
    else:
        with _leased(listing):
            staged.finish_all(url)
            done = (
                _end_another(url, listed, options)
                or Takedown(Listing.of(url), *given, hashed=options.hashed).run()
            )
    return replace(done, seconds=time.monotonic() - started)


def _end_another(root: str, listed: IdList, options: RemoveOptions) -> Removal | None:
    """End what another list has begun: files that it has changed already were not searched for this one. Return the outcome if it has no end yet."""
    if not Work(root).all_done() or has_all(tombstones_at(root), listed):
        return None
    done = Takedown(Listing.of(root), None, options, "", hashed=options.hashed).run()
    if not done.left or not Work(root).all_done():
        return None
    return replace(done, notes=(*done.notes, _NOT_BEGUN))


_NOT_BEGUN = "nothing of this list was done: a takedown of another one was stopped here, and has to end first"


def _root_of(root: object) -> str:
    if not isinstance(root, str | PathLike):
        raise UsageError(f"the root is of type {type(root).__name__}; expected a path or URL of a folder.")
    return files.normalize(layout.dataset_root(fspath(root)))


def _list_of(ids: object) -> IdList:
    if not isinstance(ids, str | PathLike):
        raise UsageError(f"ids={ids!r} is of type {type(ids).__name__}; expected the path or URL of a list.")
    url = files.normalize(fspath(ids))
    check_list(url)
    return list_keys(url)


@contextmanager
def _leased(listing: Listing) -> Iterator[None]:
    """Keep all other runs from what lies below the root, and refuse to begin while one is at work."""
    claims = dict.fromkeys(
        (journal.root, prefix)
        for journal in listing.journals
        for run in journal.runs
        for prefix in run.writes
        if files.is_inside(prefix)  # pages of reports may lie elsewhere
    )
    folders = [f"{layout.WORK}/{prefix.strip('/').replace('/', '+')}" for _, prefix in claims]
    with ExitStack() as stack:
        stack.enter_context(lease.leased(files.join(listing.root, WORK), "remove", "", listing.root))
        _check_alone(listing)
        for root in dict.fromkeys(journal.root for journal in listing.journals):
            _check_idle(root)
        for (root, prefix), folder in zip(claims, folders, strict=True):
            stack.enter_context(
                lease.leased(files.join(root, folder), "remove", "", files.join(root, prefix))
            )
        yield


def _check_alone(listing: Listing) -> None:
    """Refuse to work beside a takedown of a folder above or below, which writes the same files."""
    places = {*listing.datasets, *(place.folder for place in listing.tokens)}
    places |= {listing.place_of(journal) for journal in listing.journals}
    below = {
        above
        for place in places
        for above in upwards(listing.url(place))
        if above.startswith(f"{listing.root}/")
    }
    for folder in (*upwards(listing.root), *sorted(below)):
        if folder != listing.root and lease.holders(files.join(folder, WORK)):
            raise UsageError(
                f"another remove works in {folder}, and {listing.root} has files of both; expected one at a time. Wait for it and run the same command again.",
                root=folder,
            )


def _check_idle(root: str) -> None:
    for name in files.list_folders(files.join(root, layout.WORK)):
        folder = files.join(root, f"{layout.WORK}/{name}")
        for other in lease.holders(folder):
            if other.verb != "remove":
                raise UsageError(
                    f"{other.verb} works in {root} (process {other.pid} on {other.host}); expected nobody to write below the root. Wait for it and run the same "
                    "command again.",
                    root=root,
                )
