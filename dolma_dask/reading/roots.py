"""Datasets, folders of token files, lists of dropped documents and indexes below a root: the walk of whoever goes over all of them. Folders are listed, no file is opened.

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

_WRITERS = {**dict.fromkeys((*names_of("tokens"), "hdf5"), "tokens"), "dropped": "dropped"}
"""Journals of folders that hold nothing else, and what they are."""

_SUFFIXES = (*(one.data for one in FORMATS.values() if one.data != ".parquet"), ".h5")
"""Suffixes of files that hold token ids, whoever wrote them; a table may hold anything."""


class Roots(Struct, frozen=True):
    """What lies at or below a root; paths are relative to it, empty for the root itself."""

    root: str
    datasets: tuple[str, ...] = ()  # folders with documents/ in them
    tokens: tuple[str, ...] = ()  # folders with token files, or with the journal or the segments of such
    dropped: tuple[str, ...] = ()  # folders of ``mix --dropped``
    indexes: tuple[str, ...] = ()  # of `dedupe`

    def url(self, path: str) -> str:
        """Return the URL of one of them."""
        return files.join(self.root, path)


def roots_below(root: str, depth: int = DEPTH) -> Roots:
    """Return what lies at or below a root; a folder may be several of these, and a dataset may hold others."""
    root = files.normalize(root)
    found = list(_walk(root, "", depth))
    kinds = {name: tuple(path for path, own in found if name in own) for name in _KINDS}
    return Roots(root, **kinds)


def datasets_below(root: str, depth: int = DEPTH) -> list[str]:
    """Return the URLs of the datasets at or below a root."""
    found = roots_below(root, depth)
    return [found.url(path) for path in found.datasets]


def token_folders_below(root: str, depth: int = DEPTH) -> list[str]:
    """Return the URLs of the folders of token files at or below a root."""
    found = roots_below(root, depth)
    return [found.url(path) for path in found.tokens]


_KINDS = Roots.__struct_fields__[1:]


def _walk(root: str, path: str, depth: int, inside: bool = False) -> Iterator[tuple[str, set[str]]]:
    """Yield each folder and what it is; those `inside` of a folder of token files may be its shards."""
    url = files.join(root, path)
    try:
        folders, names = files.list_level(url)
    except PermissionError:
        return
    kinds = set(_kinds(url, folders))
    if not inside and any(name.endswith(_SUFFIXES) for name in names):
        kinds.add("tokens")
    yield path, kinds
    is_dataset = "datasets" in kinds
    below, kept = DEPTH if is_dataset else depth, _OF_DATASETS if is_dataset else ()
    for name in folders if below else ():
        if not name.startswith("_") and name not in kept and not layout.is_segment(name):
            yield from _walk(root, f"{path}/{name}".lstrip("/"), below - 1, inside or "tokens" in kinds)


def _kinds(url: str, folders: list[str]) -> Iterator[str]:
    """Yield what a folder is by the folders in it."""
    if layout.DOCUMENTS in folders:
        yield "datasets"
    if FOLDER in folders:
        yield "tokens"
    if layout.SEGMENTS in folders and any(
        map(layout.is_segment, files.list_folders(files.join(url, layout.SEGMENTS)))
    ):
        yield "indexes"
    if layout.JOURNAL in folders:
        ran = files.list_folders(files.join(url, layout.JOURNAL))
        yield from (_WRITERS[verb] for verb in ran if verb in _WRITERS)
