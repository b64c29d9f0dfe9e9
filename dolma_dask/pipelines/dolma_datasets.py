"""Files that the Dolma toolkit's commands name by patterns -> the datasets in which they lie, and options for the part of each that is meant."""

import os
import posixpath
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any

from dolma_dask.dataset import matches as is_chosen
from dolma_dask.display import counted, listed
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.io.patterns import base_of, matches, split, without_files
from dolma_dask.pipelines.dolma_config import Given

MAX_NAMED = 200
"""Files that are named one by one, where no pattern fits."""


def find_datasets(
    given: Given, patterns: Sequence[str], folder: str = layout.DOCUMENTS
) -> dict[str, dict[str, Any]]:
    """Return the datasets in which files lie, in order, with the options that name a part of one.

    Raises `UsageError`: a pattern matches no file, or one lies outside of such a folder.
    """
    if given.places:
        return {str(given.places[0]): {}}
    found: dict[str, dict[str, None]] = {}
    ends: dict[str, dict[str, None]] = {}  # of the patterns, below the folder
    alone = []
    for pattern in patterns:
        urls = [url for url, _ in matches(pattern)]
        alone += [] if urls else [pattern]
        for url in urls:
            root, path = split(url, folder)
            root = _as_given(root, pattern)
            found.setdefault(root, {})[path] = None
            ends.setdefault(root, {})[f"/{pattern}".rpartition(f"/{folder}/")[2]] = None
    if alone or not found:
        given.wrong(folder, without_files(alone, folder))
    parts = _part if folder == layout.DOCUMENTS else _sets
    return {root: parts(given, root, list(paths), list(ends[root])) for root, paths in found.items()}


def find_anywhere(
    given: Given, patterns: Sequence[str], folder: str = layout.DOCUMENTS
) -> tuple[dict[str, dict[str, Any]], dict[str, list[FileInfo]]]:
    """Return the same for files that are only read; of those that lie in no such folder, by the place where their pattern begins, the files relative to it.

    Raises `UsageError`: a pattern matches no file, files of both kinds, or some that hold no documents.
    """
    inside: list[str] = []
    bare: dict[str, dict[str, FileInfo]] = {}
    for pattern in patterns:
        found = [(url, info) for url, info in matches(pattern) if not _is_beside(url)]
        outside = [(url, info) for url, info in found if f"/{folder}/" not in url]
        if 0 < len(outside) < len(found):
            given.wrong(
                folder,
                f"{pattern} matches {outside[0][0]} and files below a folder {folder!r}; expected a pattern for each kind.",
            )
        inside += [] if outside else [pattern]
        root = base_of(pattern) if outside else ""
        for url, info in outside:
            path = url.removeprefix(f"{root}/")
            if layout.suffix_of(path) is None:
                given.wrong(folder, f"{url} holds no {folder}; expected {layout.SUFFIXES_SHOWN}.")
            bare.setdefault(root, {})[path] = FileInfo(path, info.bytes, info.stamp)
    datasets = {} if bare and not inside else find_datasets(given, inside, folder)
    return datasets, {root: list(infos.values()) for root, infos in bare.items()}


def _is_beside(url: str) -> bool:
    """Tell whether a file is one that a writer of documents has left beside them."""
    folders = {layout.JOURNAL, layout.QUARANTINE, layout.WORK}
    return layout.is_marker(url) or not folders.isdisjoint(url.split("/"))


def _as_given(root: str, pattern: str) -> str:
    """Return the root of a dataset, seen from the current folder if the pattern is."""
    is_relative = files.is_local(pattern) and not Path(pattern).expanduser().is_absolute()
    return os.path.relpath(root) if is_relative else root


def _sets(given: Given, root: str, wanted: Sequence[str], ends: Sequence[str]) -> dict[str, Any]:
    """Return the options that name attribute sets, and the shards of them that are wanted."""
    sets = dict.fromkeys(path.partition("/")[0] for path in wanted)
    shards = [path.partition("/")[2] for path in wanted]
    return {"attributes": list(sets), **_part(given, root, shards, [end.partition("/")[2] for end in ends])}


def _part(given: Given, root: str, wanted: Sequence[str], ends: Sequence[str]) -> dict[str, Any]:
    """Return the option that leaves the files of a dataset that are wanted: none for all, the ends of patterns, else each by its name."""
    documents = _documents(root)
    stems = {layout.stem_of(path) for path in wanted}
    chosen = [path for path in documents if layout.stem_of(path) in stems]
    if len(chosen) == len(documents):
        return {}
    # `**/` of a pattern may be nothing; in `only` a star goes over folders
    selections = [ends, [end.replace("**/", "") for end in ends]]
    selections += [list(map(_exactly, chosen))] if len(chosen) <= MAX_NAMED else []
    only = next((one for one in selections if [p for p in documents if is_chosen(p, one)] == chosen), None)
    if only is None:
        given.wrong(
            layout.DOCUMENTS,
            f"{counted(len(chosen), 'file')} of {root} cannot be told from its others by patterns; expected all of it, or what lies in some of its folders.",
        )
    return {"only": list(only)}


def _documents(root: str) -> list[str]:
    """Return the document files of a dataset."""
    every = (info.path for info in files.list_files(files.join(root, layout.DOCUMENTS)))
    return [path for path in every if layout.suffix_of(path)]


def common_part(found: Mapping[str, Mapping[str, Any]]) -> list[str] | None:
    """Return patterns that leave in each of some datasets what its own options leave, none if all is left; None if there are no such patterns."""
    if len(found) == 1 or not any(found.values()):
        return [pattern for part in found.values() for pattern in part.get("only", ())]
    every = {root: _documents(root) for root in found}
    parts = {
        root: [path for path in every[root] if not part or is_chosen(path, part["only"])]
        for root, part in found.items()
    }
    named = [pattern for part in found.values() for pattern in part.get("only", ())]
    whole = [_exactly(path) for root, part in found.items() if not part for path in every[root]]
    only = list(dict.fromkeys(named + whole))
    fits = all(
        [path for path in every[root] if is_chosen(path, only)] == part for root, part in parts.items()
    )
    return only if fits and len(whole) <= MAX_NAMED else None


def _exactly(path: str) -> str:
    """Return a pattern that matches a path and is a part of none."""
    at = next((at for at, sign in enumerate(path) if sign.isalnum()), 0)
    return f"{escape(path[:at])}[{path[at]}]{escape(path[at + 1 :])}"


def apart(folders: Sequence[str], roots: Collection[str]) -> dict[str, str]:
    """Return a place in a folder for each dataset: the folder itself for one, else one by what is different in their paths, wherever they are stored.

    Raises `UsageError`: two of them would have one place.
    """
    if not folders:
        return {}
    if len(roots) == 1:
        return dict.fromkeys(roots, folders[0])
    paths = {root: files.normalize(root).rpartition("://")[2].strip("/") for root in roots}
    above = posixpath.commonpath(list(paths.values()))
    names = {root: posixpath.relpath(path, above).replace("/", "_") for root, path in paths.items()}
    if repeated := [name for name, count in Counter(names.values()).items() if count > 1]:
        alike = [root for root, name in names.items() if name == repeated[0]]
        raise UsageError(
            f"{listed(alike)} would both go into {files.join(folders[0], repeated[0])}; expected datasets with other paths, or a call for each of them."
        )
    return {root: files.join(folders[0], name) for root, name in names.items()}
