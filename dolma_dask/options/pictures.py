"""Pictures that questions write, and the names that they may show."""

from dolma_dask.dataset import Dataset
from dolma_dask.figures.figure import Figure, format_of, require_for
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.options.shared import target_of


def check_target(to: str | None) -> None:
    """Refuse a file that no picture can be written to, and packages that are not there, before anything is read."""
    if to is not None:
        require_for(format_of(target_of(to)))


def save_figure(figure: Figure, to: str | None) -> Figure:
    """Write a figure to a path or URL, if one is given; return the figure."""
    if to is not None:
        with publish(files.normalize(to)) as out:
            figure.save(out, format_of(to))
    return figure


def last_name(dataset: Dataset) -> str:
    """Return the last part of where a dataset lies, which may be shown to anybody."""
    return dataset.root.rstrip("/").rpartition("/")[2]
