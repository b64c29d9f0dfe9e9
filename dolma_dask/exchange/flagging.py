"""The dataset-wide record of an attribute set, which tells readers what holds, and the refusal to write a set that is read."""

from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.reading.columns import Columns


def dataset_unit(name: str) -> str:
    """Return the unit of the dataset-wide record of an attribute set; it is the name of no file."""
    return f"{layout.ATTRIBUTES}/{name}/"


def check_written(columns: Columns, name: str) -> None:
    """Refuse to write the attribute set that is read."""
    if columns.sets is not None and name in columns.sets.files:
        places = columns.sets.columns
        read = [column for column in columns.names if column in places and places[column][0] == name]
        raise UsageError(
            f"attribute set {name!r} would be written and is read for {' and '.join(read)}; expected another set. Choose another --name."
        )
