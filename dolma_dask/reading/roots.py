"""Datasets and folders of token files below a root: the walk of whoever goes over all of them. Folders are listed, no file is opened.

Cost: a listing of each folder down to `DEPTH` below the root, and below each dataset; what a dataset keeps is not looked at.
"""

from collections.abc import Iterator

from msgspec import Struct

from dolma_dask.dataset import DEPTH
from dolma_dask.formats import layout
from dolma_dask.formats.segments import FOLDER
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.io import files
from dolma_dask.registry import names_of

_OF_DATASETS = (
    layout.DOCUMENTS,
    layout.ATTRIBUTES,
    layout.CLUSTERS,
    layout.SEGMENTS,
    "quantiles",
    "signatures",
)
"""Folders of a dataset in which there is no other one."""

_WRITERS = {*names_of("tokens"), "hdf5"}
"""Verbs that write token files."""

_SUFFIXES = (*(one.data for one in FORMATS.values() if one.data != ".parquet"), ".h5")
"""Suffixes of files that hold token ids, whoever wrote them; a table may hold anything."""


class Roots(Struct, frozen=True):
    """What lies at or below a root; paths are relative to it, empty for the root itself."""

    root: str
    datasets: tuple[str, ...]  # folders with documents/ in them
    tokens: tuple[str, ...]  # folders with token files, or with the journal or the segments of such

    def url(self, path: str) -> str:
        """Return the URL of one of them."""
        return files.join(self.root, path)


def roots_below(root: str, depth: int = DEPTH) -> Roots:
    """Return the datasets and the folders of token files at or below a root; a folder may be both, and a dataset may hold others."""
    root = files.normalize(root)
    found = list(_walk(root, "", depth))
    return Roots(
        root,
        tuple(path for path, is_dataset, _ in found if is_dataset),
        tuple(path for path, _, has_tokens in found if has_tokens),
    )


def datasets_below(root: str, depth: int = DEPTH) -> list[str]:
    """Return the URLs of the datasets at or below a root."""
    found = roots_below(root, depth)
    return [found.url(path) for path in found.datasets]


def token_folders_below(root: str, depth: int = DEPTH) -> list[str]:
    """Return the URLs of the folders of token files at or below a root."""
    found = roots_below(root, depth)
    return [found.url(path) for path in found.tokens]


def _walk(root: str, path: str, depth: int, inside: bool = False) -> Iterator[tuple[str, bool, bool]]:
    """Yield each folder, whether it is a dataset and whether it has token files; those `inside` of a folder of token files may be its shards."""
    url = files.join(root, path)
    try:
        folders, names = files.list_level(url)
    except PermissionError:
        return
    is_dataset = layout.DOCUMENTS in folders
    has_tokens = _has_runs(url, folders) or (not inside and any(name.endswith(_SUFFIXES) for name in names))
    yield path, is_dataset, has_tokens
    below = DEPTH if is_dataset else depth
    kept = _OF_DATASETS if is_dataset else ()
    for name in folders if below else ():
        if not name.startswith("_") and name not in kept and not layout.is_segment(name):
            yield from _walk(root, f"{path}/{name}".lstrip("/"), below - 1, inside or has_tokens)


def _has_runs(url: str, folders: list[str]) -> bool:
    """Tell whether a verb has written token files into a folder."""
    if FOLDER in folders:
        return True
    return layout.JOURNAL in folders and not _WRITERS.isdisjoint(
        files.list_folders(files.join(url, layout.JOURNAL))
    )
