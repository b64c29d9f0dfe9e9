"""Segments of token files, looked up by row, and the token files of a folder; see `dolma_dask.formats.segments`.

Cost of a look-up: a few ms, to open the file and decode the row group that holds the row; of a store, a few requests.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
from msgspec import Struct

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.segments import SEGMENTS_SCHEMA, segments_path
from dolma_dask.formats.token_files import FORMATS, SIDECAR, FormatName
from dolma_dask.io import files
from dolma_dask.io.parquet import open_parquet
from dolma_dask.text import compute as pc

if TYPE_CHECKING:
    import pyarrow.parquet as pq


class TokenFile(Struct, frozen=True):
    """A token file of a folder."""

    path: str  # of its ids, relative to the folder
    format: FormatName | Literal["hdf5"]
    bytes: int  # stored, of this file alone
    has_segments: bool  # earlier versions wrote none


def token_files(root: str) -> list[TokenFile]:
    """Return the token files of a folder, local or of a store, sorted by name."""
    listed = {info.path: info.bytes for info in files.list_files(root)}
    names = (name for name in sorted(listed) if "/" not in name)
    found = ((name, _format_of(root, name, listed.keys())) for name in names)
    return [
        TokenFile(name, kind, listed[name], segments_path(name) in listed)
        for name, kind in found
        if kind is not None
    ]


def _format_of(root: str, name: str, listed: Collection[str]) -> FormatName | Literal["hdf5"] | None:
    """Return the format of a file by its name and what stands beside it; None if it is no token file."""
    if name.endswith(".h5"):
        return "hdf5"
    for kind, known in FORMATS.items():
        stem, beside = name.removesuffix(known.data), set(known.beside) - {SIDECAR}
        if stem != name and all(stem + suffix in listed for suffix in beside):
            return kind if kind != "parquet" or _has_tokens(root, name, listed) else None
    return None


def _has_tokens(root: str, name: str, listed: Collection[str]) -> bool:
    """Tell whether a table is one of token ids; a damaged one is only if its segments are there."""
    if segments_path(name) in listed:
        return True
    with suppress(CorruptFileError), open_parquet(files.join(root, name)) as file:
        return b"dolma_dask" in (file.metadata.metadata or {})
    return False


def read_segments(root: str, token_file: str, rows: int | Iterable[int] | None = None) -> pa.Table:
    """Return the segments of a token file.

    Parameters
    ----------
    root : str
        Folder or URL of the token files.
    token_file : str
        Name of the file of ids there: ``v0.00000-of-00004.data.npy``, ``part-000000-00000.h5``.
    rows : int or iterable of int, optional
        Rows of the token file whose segments are wanted; by default all. Of several, only row groups that hold one are read.

    Returns
    -------
    pyarrow.Table
        See `dolma_dask.formats.segments.SEGMENTS_SCHEMA`; in the order of rows.

    Raises
    ------
    UsageError
        The file has no segments, as those of earlier versions and of other tools.
    CorruptFileError
        They are damaged.
    """
    url = files.join(root, segments_path(token_file))
    if files.stat(url) is None:
        raise UsageError(
            f"{files.join(root, token_file)} has no segments: {url} is not there, so that nothing tells which documents its rows are made of. Expected a "
            "token file of this version of dolma_dask; make it again with the same command.",
            url=url,
        )
    with open_parquet(url) as file:
        try:
            return _segments(file, rows)
        except (ValueError, KeyError, AttributeError, OSError) as error:
            if getattr(error, "errno", None):
                raise
            raise CorruptFileError(
                f"{url} cannot be read ({error}); expected the segments of a token file, whole and unchanged. Write the token file again with --overwrite.",
                url=url,
            ) from error


def _segments(file: "pq.ParquetFile", rows: int | Iterable[int] | None) -> pa.Table:
    if rows is None:
        return _as_written(file.read(use_threads=False))
    wanted = np.unique(np.atleast_1d(np.asarray(rows if isinstance(rows, int) else list(rows), np.int64)))
    found = file.read_row_groups(_groups_of(file, wanted), use_threads=False)
    return _as_written(found.filter(pc.is_in(found.column("row"), pa.array(wanted))))


def _as_written(table: pa.Table) -> pa.Table:
    """Return segments with the types of their columns, of which Parquet keeps some otherwise."""
    return table.cast(SEGMENTS_SCHEMA)


def _groups_of(file: "pq.ParquetFile", rows: np.ndarray) -> list[int]:
    """Return the row groups that may hold some rows (n,), sorted."""
    chosen = []
    for number in range(file.num_row_groups):
        known = file.metadata.row_group(number).column(0).statistics
        low, high = np.searchsorted(rows, [known.min, known.max + 1])
        chosen += [number] if high > low else []
    return chosen
