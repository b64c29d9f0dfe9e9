"""A dataset: an immutable description of document shards and attribute sets, without Dask and without open files.

Listing costs one walk over ``documents/``; a `Dataset` pickles in bytes per shard and goes to workers as it is.
"""

import fnmatch
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import byte_size, counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.registry import load

ROOT = "DOLMA_DASK_ROOT"
"""Variable of the environment with the root of sources that is meant where a call names a source and a version alone."""

MAX_SHOWN = 10
"""Datasets that a message names."""

_OVERVIEW = "dolma_dask.questions.status.overview:overview"
"""Function that shows a dataset in notebooks; it reads journals, which are above datasets."""


class Shard(Struct, frozen=True, gc=False):
    """One file of documents."""

    path: str  # relative to ``documents/``
    bytes: int  # stored size
    stamp: str  # see `dolma_dask.io.files.FileInfo`
    ids_as_text: bool = False  # see `Dataset`; who reads documents or attributes has their shard
    # that `path` is below; empty: the root, of files that lie in no ``documents/``
    folder: str = layout.DOCUMENTS

    @property
    def document(self) -> str:
        """The file, relative to the dataset."""
        return layout.document_path(self.path, self.folder)

    @property
    def params(self) -> dict[str, Any]:
        """What decides how it is read, besides its bytes, for keys."""
        return _form_of_ids(self.ids_as_text)


class Dataset(Struct, frozen=True, weakref=True):
    """A root with ``documents/`` and ``attributes/<name>/`` below it.

    Attributes
    ----------
    root : str
        URL or absolute path.
    shards : tuple of Shard
        Sorted by the UTF-8 bytes of their paths.
    attributes : tuple of str
        Names of the attribute sets that are there.
    source : str or None
        Source of all documents, for files that lack the field.
    ignored : tuple of FileInfo
        Files below ``documents/`` whose suffix is not one of documents: data that nobody reads. Markers such as ``_SUCCESS`` are not among them.
    skip : tuple of str
        Names of files that are left out as if they were not there.
    ids_as_text : bool
        Ids that are whole numbers, of documents and in attributes, are read as their decimal text.
    """

    root: str
    shards: tuple[Shard, ...]
    attributes: tuple[str, ...] = ()
    source: str | None = None
    ignored: tuple[FileInfo, ...] = ()
    skip: tuple[str, ...] = ()
    ids_as_text: bool = False

    @property
    def params(self) -> dict[str, Any]:
        """What decides how its documents are read, besides their bytes, for keys and journals."""
        return {"source": self.source, **_form_of_ids(self.ids_as_text)}

    @property
    def folder(self) -> str:
        """Where its documents lie below the root; empty: there, see `bare_dataset`."""
        return self.shards[0].folder if self.shards else layout.DOCUMENTS

    @property
    def bytes(self) -> int:
        """Stored bytes of all document files."""
        return sum(shard.bytes for shard in self.shards)

    def url(self, path: str) -> str:
        """Return the URL of a path relative to the dataset."""
        return files.join(self.root, path)

    def select(
        self, only: Sequence[str] = (), prune: int | None = None, share: str | None = None
    ) -> "Dataset":
        """Return the dataset with the shards that match a pattern of `only`, those of a `share` of them, at most `prune`.

        Parameters
        ----------
        only : sequence of str
            Shell patterns, or parts of a path; empty means all.
        prune : int, optional
            Keep the first `prune` shards: a rehearsal.
        share : str, optional
            Such as ``3/16``, see `share_of`.

        Raises
        ------
        UsageError
            No shard matches, `prune` leaves none, or `share` is not one.
        """
        if prune is not None and prune < 1:
            raise UsageError(f"prune={prune} leaves no shard; expected 1 or more.")
        kept = tuple(shard for shard in self.shards if not only or matches(shard.path, only))
        if self.shards and not kept:
            raise UsageError(
                f"no shard of {self.root} matches {' '.join(only)!r}; expected a part of a path or a shell pattern such as "
                f"'2019-*/*'; the first shard is {self.shards[0].path!r}."
            )
        return replace(self, shards=tuple(share_of(kept, share))[:prune])

    def without(self, skip: Sequence[str]) -> "Dataset":
        """Return the dataset without the files that `skip` names, besides those that it leaves out already."""

        def kept(infos: Iterable[Item]) -> tuple[Item, ...]:
            return tuple(info for info in infos if not layout.is_named(info.path, skip))  # type: ignore[attr-defined]

        every = tuple(dict.fromkeys((*self.skip, *skip)))
        return replace(self, shards=kept(self.shards), ignored=kept(self.ignored), skip=every)

    def with_ids_as_text(self) -> "Dataset":
        """Return the dataset with `ids_as_text`."""
        return replace(
            self, ids_as_text=True, shards=tuple(replace(shard, ids_as_text=True) for shard in self.shards)
        )

    def holds(self, path: str) -> bool:
        """Tell whether a file below ``documents/`` is one of documents, and not left out."""
        return layout.suffix_of(path) is not None and not layout.is_named(path, self.skip)

    def check_all_read(self, only: Sequence[str] = ()) -> None:
        """Refuse files below ``documents/`` that nobody would read, among those that `only` asks for (`select`): documents may be in them.

        Raises `UsageError`: there are such files.
        """
        unread = [info for info in self.ignored if not only or matches(info.path, only)]
        if not unread:
            return
        kinds: dict[str, list[FileInfo]] = {}
        for info in unread:
            kinds.setdefault(_ending(info.path), []).append(info)
        shown = "; ".join(
            f"{name}: {counted(len(found), 'file')}, {byte_size(sum(info.bytes for info in found))}, such as {found[0].path}"
            for name, found in sorted(kinds.items())[:MAX_SHOWN]
        )
        names = " ".join(
            f"'*{name}'" if name.startswith(".") else found[0].path for name, found in kinds.items()
        )
        raise UsageError(
            f"{self.root}/{layout.DOCUMENTS} holds {counted(len(unread), 'file')} that nobody would read ({shown}); expected {layout.SUFFIXES_SHOWN}. "
            f"Rename what is JSON lines, make documents of other data with `dolma-dask convert`, and name what is none: --skip {names}."
        )

    def with_current_attributes(self) -> "Dataset":
        """Return the dataset with the attribute sets that are there now, such as those made since it was opened."""
        return replace(self, attributes=_attribute_sets(self.root)) if self.folder else self

    def __repr__(self) -> str:
        sets = ", ".join(self.attributes) or "none"
        return f"<Dataset {self.root}: {counted(len(self.shards), 'shard')}, {self.bytes / 1e6:,.1f} MB stored, attributes: {sets}>"

    def _repr_html_(self) -> str:
        return str(load(_OVERVIEW)(self))


def _ending(path: str) -> str:
    """Return the suffix of a path with what is before a compression, or what people see in its place."""
    stem, suffix = posixpath.splitext(path.rpartition("/")[2])
    if suffix in layout.DOCUMENT_SUFFIXES:
        suffix = posixpath.splitext(stem)[1] + suffix
    return suffix or "no suffix"


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Tell whether `path` contains, or matches as a shell pattern, one of `patterns`."""
    return any(pattern in path or fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


Item = TypeVar("Item")


def share_of(items: Sequence[Item], share: str | None) -> Sequence[Item]:
    """Return every sixteenth of `items` from the third on for the share ``3/16``, all for None; a share of fewer items than shares may be empty.

    Raises `UsageError`: `share` is not one.
    """
    if share is None:
        return items
    number, _, count = str(share).partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UsageError(
            f"share={share!r}; expected which of how many, counted from 1, such as 3/16. In an array job that is "
            '--share "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT" after sbatch --array=1-16.'
        )
    return items[int(number) - 1 :: int(count)]


def open_dataset(
    url: str | None = None,
    *,
    source: str | None = None,
    version: str | None = None,
    skip: Sequence[str] = (),
    ids_as_text: bool = False,
) -> Dataset:
    """List a dataset.

    Parameters
    ----------
    url : str, optional
        Dataset root, its ``documents`` folder, or, with `version`, a root of sources; by default that of ``DOLMA_DASK_ROOT`` in the environment.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the folder's name too.
    version : str, optional
        The dataset is ``sources/<source>/<version>`` below `url`, or ``<source>/<version>`` where only that is there.
    skip : sequence of str
        Files below ``documents/`` that are left out: names, paths or shell patterns.
    ids_as_text : bool
        Read ids that are whole numbers as their decimal text, in documents and attributes.

    Returns
    -------
    Dataset

    Raises
    ------
    UsageError
        There is no document file.
    """
    url = os.environ.get(ROOT, "") if url is None else url
    if not url:
        raise UsageError(
            f"no dataset; expected its folder or URL, or {ROOT} in the environment: a root with sources/<source>/<version> in it."
        )
    base = url if version is None else version_root(url, source, version)
    root = layout.dataset_root(files.normalize(base))
    listed = files.list_files(files.join(root, layout.DOCUMENTS))
    listed = [info for info in listed if not layout.is_named(info.path, skip)]
    documents = [info for info in listed if layout.suffix_of(info.path)]
    if not documents:
        found = "is a file" if files.stat(files.join(root, layout.DOCUMENTS)) else "holds no document files"
        raise UsageError(
            f"{root}/{layout.DOCUMENTS} {found}; expected {layout.SUFFIXES_SHOWN} below it. {_hint(url)}"
        )
    dataset = Dataset(
        root=root,
        shards=tuple(Shard(info.path, info.bytes, info.stamp) for info in documents),
        attributes=_attribute_sets(root),
        source=source,
        ignored=tuple(
            info for info in listed if not layout.suffix_of(info.path) and not layout.is_marker(info.path)
        ),
        skip=tuple(skip),
    )
    return dataset.with_ids_as_text() if ids_as_text else dataset


def bare_dataset(root: str, documents: Iterable[FileInfo]) -> Dataset:
    """Return files of documents that lie in no folder ``documents/`` as a dataset, which has no attributes; their paths are relative to `root`."""
    ordered = sorted(documents, key=lambda info: info.path.encode())
    return Dataset(root, tuple(Shard(info.path, info.bytes, info.stamp, folder="") for info in ordered))


def _form_of_ids(ids_as_text: bool) -> dict[str, Any]:
    """Return the form of ids as a parameter: none where it is the usual one, so that keys stay as they were before there was another."""
    return {"ids_as_text": True} if ids_as_text else {}


def as_recorded(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `open_dataset` for reading documents as a run did, by the parameters that its journal keeps."""
    return {"source": params.get("source"), "ids_as_text": bool(params.get("ids_as_text"))}


def version_root(url: str, source: str | None, version: str | None) -> str:
    """Return where a version of a source lies below `url`.

    Raises `UsageError`: one of both is missing.
    """
    if not source or not version:
        given, missing = ("version", "source") if version else ("source", "version")
        raise UsageError(
            f"`{given}` was given without `{missing}`; expected both, as in sources/<source>/<version>."
        )
    places = layout.version_roots(url, source, version)
    there = (place for place in places if layout.DOCUMENTS in files.list_folders(files.normalize(place)))
    return next(there, places[0])


DEPTH = 3
"""Folders between a root and a dataset below it: ``sources/<source>/<version>``."""


def datasets_below(root: str, depth: int = DEPTH) -> list[str]:
    """Return the paths of the datasets at or below a normalized root, relative to it; what lies inside of one is not looked at."""
    try:
        folders = files.list_folders(root)
    except PermissionError:
        return []
    if layout.DOCUMENTS in folders:
        return [""]
    names = [name for name in folders if depth and not name.startswith("_") and not layout.is_segment(name)]
    return [
        f"{name}/{path}".rstrip("/")
        for name in names
        for path in datasets_below(files.join(root, name), depth - 1)
    ]


def _hint(url: str) -> str:
    """Return what to do where there is no dataset: name those that lie below, or beside it where there is no such folder, or make one."""
    root, depth = files.normalize(url), DEPTH
    if any(map(layout.is_segment, files.list_folders(files.join(root, layout.SEGMENTS)))):
        return f"It is an index of dedupe: dolma-dask status {url} tells what it holds."
    above, inside, _ = root.rpartition(f"/{layout.DOCUMENTS}/")
    if inside and not {layout.ATTRIBUTES, layout.JOURNAL}.isdisjoint(files.list_folders(above)):
        return f"It lies inside of the dataset {above}: give that path, with `only` for a part of its shards."
    if files.is_local(root):  # a store may have too many folders for an error message
        root, depth = _nearest(root)
    below = datasets_below(root, depth) if files.is_local(root) else []
    if below in ([], [""]):
        return "To make a dataset from other files: dolma-dask convert INPUT --to DATASET."
    return (
        f"{counted(len(below), 'dataset')} below {url if root == files.normalize(url) else root}: {', '.join(below[:MAX_SHOWN])}{', ...' if len(below) > MAX_SHOWN else ''}. "
        "Give the path of one, or the root with --source and --version."
    )


def _nearest(root: str) -> tuple[str, int]:
    """Return a local folder that exists, and how deep below it a dataset lies that is like `root`: that folder itself, or one or two above."""
    for up in range(DEPTH):
        if files.local_path(root).is_dir():
            return root, up or DEPTH
        root = files.parent(root) or root
    return root, 0


def _attribute_sets(root: str) -> tuple[str, ...]:
    return tuple(files.list_folders(files.join(root, layout.ATTRIBUTES)))


def shard_info(shard: Shard) -> FileInfo:
    """Return a shard as a file relative to its dataset."""
    return FileInfo(shard.document, shard.bytes, shard.stamp)
