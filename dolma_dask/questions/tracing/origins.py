"""Origins of token files: the run that wrote one, the dataset that it read, and whether a document is there still."""

from typing import Literal

from msgspec import Struct

from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.formats.segments import FOLDER, segments_path
from dolma_dask.formats.token_files import FORMATS
from dolma_dask.io import files
from dolma_dask.io.stored import START, Member
from dolma_dask.journal import RunRecord, journals
from dolma_dask.reading.entry_points import EntryPoints, last_before
from dolma_dask.reading.one_row import read_row

State = Literal["there", "another document", "gone", "unknown"]


class TokenFile(Struct, frozen=True):
    """A token file in its folder."""

    root: str
    path: str  # of the file of ids, relative to the folder

    @property
    def url(self) -> str:
        """Where it is."""
        return files.join(self.root, self.path)


def token_file(url: str) -> TokenFile:
    """Return a token file with the folder that has its segments.

    Raises `UsageError`: there is no such file, or none has segments of it.
    """
    whole = _data_file(files.normalize(url))
    if files.stat(whole) is None:
        found = "a folder" if files.list_files(whole) else "no such file"
        raise UsageError(
            f"{whole}: {found}; expected a token file, such as out/ragged/v0.00000-of-00008.data.npy or part-000000-00000.h5."
        )
    root, path = files.parent(whole), whole.rpartition("/")[2]
    while root:
        if files.stat(files.join(root, segments_path(path))) is not None:
            return TokenFile(root, path)
        root, path = files.parent(root), f"{root.rpartition('/')[2]}/{path}"
    raise UsageError(
        f"{whole} has no segments ({FOLDER}/ beside it), which tell the documents of its rows: it was written by another tool, by an earlier version, or copied without them. "
        "Write it again with this version: dolma-dask ragged or hdf5, with --overwrite."
    )


def _data_file(url: str) -> str:
    """Return the file of ids for one that stands beside it."""
    for form in FORMATS.values():
        for suffix in form.beside:
            stem = url.removesuffix(suffix)
            if stem != url and not url.endswith(form.data) and files.stat(stem + form.data) is not None:
                return stem + form.data
    return url


def run_of(file: TokenFile) -> RunRecord | None:
    """Return the run that wrote a token file; None if no journal knows it."""
    for journal in journals(file.root):
        record = journal.by_file().get(file.path)
        begun = [run for run in journal.runs if record and run.started <= record.finished]
        if begun:
            return begun[-1]
    return None


class Documents:
    """Documents that token files were made of, with the points at which their shards can be entered."""

    def __init__(self) -> None:
        self._points: dict[str, EntryPoints] = {}

    def look(self, root: str, path: str, row: int, id: str | None) -> tuple[State, str]:
        """Return whether a document is in its place, and its text."""
        url = files.join(root, path)
        info = files.stat(url)
        if info is None:
            return "gone", ""
        try:
            found = read_row(url, row, self.start(root, path, row))
        except CorruptFileError:
            return "another document", ""
        if found is None:
            return "gone", ""
        is_same = id is None or found["id"] == id
        return ("there" if is_same else "another document"), (found["text"] or "") if is_same else ""

    def start(self, root: str, path: str, row: int) -> Member:
        """Return the last point at or before a row of a file of lines."""
        info = files.stat(files.join(root, path))
        if info is None or path.endswith(".parquet"):
            return START
        points = self._points.setdefault(root, EntryPoints(root))
        return last_before(points.attributes(files.FileInfo(path, info.bytes, info.stamp)), row)
