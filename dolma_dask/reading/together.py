"""Datasets whose rows were made together: each names all of them in its dataset-wide record, ``info["datasets"]``, in one order.

An entry is the place of a dataset as seen from the one that has the record (``.`` is that one itself), and the key of its rows, which tells the datasets of a
call apart: what lies at the place of a dataset that is gone does not pass for it.
"""

import msgspec

from dolma_dask.errors import AlignmentError
from dolma_dask.journal import Record

OWN = "."
"""A dataset as seen from itself."""

MAX_DATASETS = 1000
"""Datasets of a call."""


def datasets_in(record: Record) -> list[tuple[str, str]]:
    """Return place and key of the datasets of a dataset-wide record; none if its dataset is alone.

    Raises `AlignmentError`: the record is not as it was written.
    """
    try:
        found = msgspec.convert(record.info.get("datasets", []), list[tuple[str, str]])
        places = [place for place, _ in found]
        is_whole = len(set(places)) == len(places) <= MAX_DATASETS and (OWN in places) == bool(places)
    except msgspec.ValidationError:
        is_whole = False
    if not is_whole:
        raise AlignmentError(
            f"the record of {record.unit} does not name the datasets that were made together; expected it as it was written. Make the set again.",
            shard=record.shard,
        )
    return found
