"""Attribute sets whose rows depend on more than their own shard: believed only if one run made them all, of what is there now.

Who survives of duplicates depends on all documents. With marks of two runs, or of documents that are gone, a document could be dropped as a
copy of one that is dropped too. So such a set has a record as a whole, written before its files: the key that they must have, and all that
it was made of.
"""

import re
from collections.abc import Callable, Mapping

from dolma_dask.dataset import Dataset
from dolma_dask.errors import AlignmentError, StaleAttributesError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.files import FileInfo
from dolma_dask.journal import Record, is_same_file

WHOLE_UNIT = re.compile(f"{layout.ATTRIBUTES}/[^/]+/")
"""Unit of the record of a set as a whole."""

Listed = Callable[[str], Mapping[str, FileInfo]]
"""Gives the files of an attribute set, by their paths in it."""


def check_whole(
    dataset: Dataset,
    name: str,
    found: Mapping[str, FileInfo],
    known: Mapping[str, tuple[str, Record]],
    whole: Record | None,
    listed: Listed,
) -> None:
    """Refuse files of such a set that cannot be believed; sets of other kinds pass.

    Parameters
    ----------
    dataset : Dataset
        The shards that are read.
    name : str
        Attribute set.
    found : Mapping[str, FileInfo]
        By shard: its file in the set.
    known : Mapping[str, (str, Record)]
        By shard: the verb that wrote that file, and its record.
    whole : Record or None
        Of the set as a whole: ``info["key"]`` is that of the files; ``info["depends_on"]`` is "list" if its rows depend on a list and
        their own shard only.
    listed : callable
        See `Listed`.

    Raises
    ------
    AlignmentError
        The files are not those of one run that has ended.
    StaleAttributesError
        There are other files now than those that the set was made of.
    """
    made = {shard: record for shard, (_, record) in known.items() if record.info.get("whole") is True}
    if not made:
        return
    first = next(iter(made))
    verb = known[first][0]
    again = f"Re-run: dolma-dask {verb} ... --name {name}"
    key = whole.info.get("key") if whole else None
    for shard, info in found.items():
        record = made.get(shard)
        if record is None or record.key != key or all(file.bytes != info.bytes for file in record.files):
            raise AlignmentError(
                f"attribute set {name} was not made by one run of `{verb}` that has ended: {info.path} is of another one, or has been changed; "
                f"expected one, since its rows depend on more than their own shard. {again}",
                shard=shard,
                attributes=name,
            )
    if whole and whole.info.get("depends_on") != "list":
        by_ids = set(made[first].info.get("reads", ())) <= {"id", "source"}
        _check_inputs(dataset, name, whole, listed, first, again, by_ids)


def _check_inputs(
    dataset: Dataset, name: str, whole: Record, listed: Listed, shard: str, again: str, by_ids: bool
) -> None:
    """Refuse a set that was made of other files than there are now.

    What the shards of `dataset` hold is proved when they are read (other texts are no matter if the set depends on ids alone); other files
    are hashed if their stamps differ.
    """
    now = _now(dataset, whole, listed)
    then = {item.path: item for item in whole.inputs}
    read = {layout.document_path(one.path) for one in dataset.shards}
    changed = sorted(
        path
        for path in then.keys() | now.keys()
        if path not in then
        or path not in now
        or (then[path].bytes != now[path].bytes and not (by_ids and path in read))
    )
    changed += sorted(
        path
        for path in then.keys() - set(changed) - read
        if not is_same_file(then[path], dataset.url(path), now[path])
    )
    if changed:
        what = "is new" if changed[0] not in then else "is gone" if changed[0] not in now else "has changed"
        raise StaleAttributesError(
            f"attribute set {name} is stale: {changed[0]} {what} since it was made, one of {len(changed):,}, and its rows depend on all files. "
            f"{again}",
            shard=shard,
            attributes=name,
        )


def _now(dataset: Dataset, whole: Record, listed: Listed) -> dict[str, FileInfo]:
    """Return the files that are there now: all documents, and those of the attributes that the set was made of."""
    documents = files.list_files(dataset.url(layout.DOCUMENTS))
    paths = [(layout.document_path(info.path), info) for info in documents if layout.suffix_of(info.path)]
    then = {item.path for item in whole.inputs}
    for name in {path.split("/")[1] for path in then if path.startswith(f"{layout.ATTRIBUTES}/")}:
        paths += [(f"{layout.ATTRIBUTES}/{name}/{info.path}", info) for info in listed(name).values()]
    return {path: info for path, info in paths if path in then or path.startswith(f"{layout.DOCUMENTS}/")}
