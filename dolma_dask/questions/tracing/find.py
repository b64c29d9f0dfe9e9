"""find: every place of a document below some roots, by its id. Cost: the ids of all files once (`index`), then milliseconds for a look-up in each folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import fspath
from typing import Annotated, Any

from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.id_lists import IdListFile
from dolma_dask.options.base import OWN, Opt, words_of
from dolma_dask.options.command import command
from dolma_dask.questions.tracing.index import IndexOptions
from dolma_dask.questions.tracing.places import Found, FoundId
from dolma_dask.questions.tracing.search import Searched

MAX_IDS = 100_000
"""Ids of a call."""


def ids_of(name: str, given: Any) -> tuple[str, ...]:
    """Return ids, of which an empty one is an id too."""
    found = tuple(given) if isinstance(given, list | tuple) else (given,)
    for one in found:
        if not isinstance(one, str):
            raise UsageError(
                f"{name}={one!r}; expected a string, since ids of documents are strings: {str(one)!r}."
            )
    return found


@dataclass(frozen=True, kw_only=True)
class FindOptions(IndexOptions):
    """Options of `find`."""

    source: Annotated[
        str | None,
        Opt("Only documents of this source, and those that name none.", group=OWN),
    ] = None
    also: Annotated[
        Sequence[str], Opt("Further ids.", convert=lambda value: ids_of("also", value), group=OWN)
    ] = ()
    ids: Annotated[
        str | None,
        Opt(
            "A list of ids, or of sources and ids: text, JSON lines, CSV, TSV or Parquet, as block takes it. With it, a single word is the root.",
            group=OWN,
        ),
    ] = None


@command
def find(
    id: Annotated[
        str | tuple[str, ...],
        Opt(
            "Id of a document. In Python also several.",
            kind="str or tuple of str",
            convert=lambda value: ids_of("id", value),
        ),
    ],
    roots: Annotated[
        Sequence[str] | str,
        Opt(
            "Folders or URLs: datasets, token files, or roots with such in them.",
            convert=lambda value: words_of("roots", value),
        ),
    ] = (),
    /,
    *,
    options: FindOptions,
) -> Found:
    """Find every place of a document below some roots: versions, attributes, token files, clusters, lists of what was dropped or set aside.

    Example: dolma-dask find 7 corpus

    The first call reads the ids of all files once; an index in the user's cache folder answers later ones in milliseconds, and reads again only files that have changed.

    Returns
    -------
    Found
        Its exit status is 1 if an id is nowhere.

    Raises
    ------
    UsageError
        Nothing with ids is below the roots.
    StageError
        A file cannot be read.

    Examples
    --------
    >>> found = dk.find("enwiki-17", "corpus")  # doctest: +SKIP
    >>> found.ids[0].tokens  # doctest: +SKIP
    """
    words, roots = tuple(id), tuple(map(fspath, roots))
    if not roots and (options.ids or options.also):
        words, roots = (), words
    if not roots:
        raise UsageError(
            f"`find` was given no root; expected the folder to search behind the id: dolma-dask find {' '.join(map(repr, words))} corpus"
        )
    bare = tuple(dict.fromkeys((*words, *options.also)))
    searched = Searched.below(tuple(map(files.normalize, roots)), options)
    if not searched.folders:
        raise UsageError(
            f"{', '.join(roots)}: no dataset, no token files and no list of dropped documents there; expected a root with such in it, up to three folders below."
        )
    found = searched.find(bare, options.source)
    for source, some in _listed(options).items():
        found += searched.find(some, source or options.source)
    return Found(tuple(one.root for one in searched.roots), _merged(found), tuple(_notes(searched)))


def _listed(options: FindOptions) -> dict[str, list[str]]:
    """Return the ids of the list by their source, empty for any."""
    by_source: dict[str, list[str]] = {}
    for block in IdListFile(options.ids) if options.ids else ():
        for source, id in zip(block.sources.to_pylist(), block.ids.to_pylist(), strict=True):
            by_source.setdefault(source or "", []).append(id)
    if (count := sum(map(len, by_source.values()))) > MAX_IDS:
        raise UsageError(
            f"{options.ids} holds {counted(count, 'id')}; expected at most {MAX_IDS:,}: cut the list."
        )
    return by_source


def _merged(found: Sequence[FoundId]) -> tuple[FoundId, ...]:
    """Return each answer once."""
    return tuple({repr(one): one for one in found}.values())


def _notes(searched: Searched) -> list[str]:
    if not searched.untraced:
        return []
    return [
        f"{counted(len(searched.untraced), 'folder')} of token files without segments, which were not searched, first {searched.untraced[0]}: "
        "write them again with this version"
    ]
