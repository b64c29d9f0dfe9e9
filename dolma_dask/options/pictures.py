"""Pictures that questions write, and the names that they may show."""

from dataclasses import dataclass
from typing import Annotated

from dolma_dask.figures.figure import Figure, format_of, require_for
from dolma_dask.io import files
from dolma_dask.io.publish import publish
from dolma_dask.options.base import OUTPUT, Opt, Options
from dolma_dask.options.groups import check_outside, target_of


def _picture(to: str | None) -> str | None:
    if to is None:
        return None
    require_for(format_of(target_of(to)))
    return target_of(to)


@dataclass(frozen=True, kw_only=True)
class PictureOptions(Options):
    """Options for the file of a picture, checked before anything is read, together with the packages that draw it."""

    group = OUTPUT

    to: Annotated[str | None, Opt("Picture to write, ending in .png, .svg or .html.", convert=_picture)] = (
        None
    )

    def check_outside(self, root: str) -> None:
        """Refuse a picture among the documents and attributes of a dataset."""
        if self.to is not None:
            check_outside(files.normalize(self.to), root)

    def save(self, figure: Figure) -> Figure:
        """Write a figure, if that is wanted; return the figure."""
        if self.to is not None:
            with publish(files.normalize(self.to)) as out:
                figure.save(out, format_of(self.to))
        return figure
