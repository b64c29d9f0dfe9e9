"""A figure: numbers that show themselves as a picture, and stay numbers."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import printable
from dolma_dask.errors import UsageError
from dolma_dask.extras import missing, require
from dolma_dask.figures.model import Panel, cut, with_short_names
from dolma_dask.figures.numbers import columns_of, listed_columns, sentence_of, table_of
from dolma_dask.results.answer import terminal_text
from dolma_dask.results.parts import Heading, Part, Sentences

if TYPE_CHECKING:
    import pandas as pd


Format = Literal["png", "svg", "html"]


class Writer(Protocol):
    """A file that takes bytes."""

    def write(self, content: bytes, /) -> object:
        """Take all of `content`."""


def format_of(name: str | os.PathLike[str]) -> Format:
    """Return the format that the end of a file's name means; raise `UsageError` if it is none."""
    for known in get_args(Format):
        if os.fspath(name).endswith(f".{known}"):
            found: Format = known
            return found
    raise UsageError(
        f"{os.fspath(name)!r} is no name of a picture; expected one that ends in .png, .svg or .html."
    )


def require_for(format: Format) -> None:
    """Raise `UsageError` if a package is not installed that draws a format; a page holds a picture too."""
    require("matplotlib", "a picture of a figure")
    if format == "html":
        require("bokeh", "a page of a figure")


class Figure(Struct, frozen=True, weakref=True):
    """Numbers and their picture: shows itself in a notebook, prints as a table, and is saved by `save`.

    With ``DOLMA_DASK_STATIC=1`` in the environment notebooks show the picture alone, which suits those that are kept.

    Attributes
    ----------
    title : str
        One line above the picture.
    panels : tuple
        What is drawn, as records of `dolma_dask.figures.model`.
    axis : str
        Name of the horizontal axis of all panels.
    notes : tuple of str
        Lines below the title: what was counted, and what a person should know.
    """

    title: str
    panels: tuple[Panel, ...]
    axis: str = ""
    notes: tuple[str, ...] = ()
    exit_status: int = 0

    def frame(self) -> "pd.DataFrame":
        """Return the numbers as a frame: a row per bin, bar, condition or group; of several panels with a column ``panel``.

        Examples
        --------
        >>> words = dk.histogram("corpus/v0", "word_count")  # doctest: +SKIP
        >>> words.frame()[["from", "documents"]]  # doctest: +SKIP
        """
        import pandas as pd

        frames = [pd.DataFrame(columns_of(panel)) for panel in self.panels]
        if len(frames) == 1:
            return frames[0]
        pairs = zip(self.panels, frames, strict=True)
        return pd.concat([frame.assign(panel=panel.key) for panel, frame in pairs], ignore_index=True)

    def to_json(self) -> dict[str, Any]:
        """Return title, notes and numbers as JSON-able values; None stands for what is no finite number."""
        panels = [{"panel": panel.key, "columns": listed_columns(panel)} for panel in self.panels]
        return {"title": self.title, "notes": list(self.notes), "panels": panels}

    def describe(self) -> str:
        """Return what the picture shows in a few plain sentences; they are its alternative text."""
        shown = self._shown()
        sentences = [sentence_of(panel) for panel in shown.panels]
        if (
            sentences[0].casefold().startswith(f"{shown.title}: ".casefold())
        ):  # the panel is named after the figure
            sentences[0] = shown.title + sentences[0][len(shown.title) :]
        else:
            sentences = [f"{shown.title}.", *sentences]
        return printable(" ".join(sentences))

    def _shown(self) -> "Figure":
        """Return the same figure with the beginnings of very long names, as all but the frame show it."""
        panels = tuple(map(with_short_names, self.panels))
        return replace(self, title=cut(self.title), panels=panels, axis=cut(self.axis))

    def png(self) -> bytes:
        """Return the picture as PNG, of two pixels for each that a notebook shows."""
        return self._rendered("png")

    def svg(self) -> str:
        """Return the picture as SVG."""
        return self._rendered("svg").decode()

    def save(self, file: str | os.PathLike[str] | Writer, format: Format | None = None) -> None:
        """Write the figure; a file appears whole or not at all.

        Parameters
        ----------
        file : str, path or writable binary file
            A local path, or what was opened for writing bytes, such as by ``fsspec.open("s3://bucket/words.png", "wb")``.
        format : {"png", "svg", "html"}, optional
            Default: what the name ends in. HTML is a page of its own, interactive, that needs no network.
        """
        if format not in (None, *get_args(Format)):
            raise UsageError(f"format={format!r}; expected 'png', 'svg' or 'html'.")
        if isinstance(file, str | os.PathLike):
            _check_local(os.fspath(file))
            _write_whole(Path(file).expanduser(), self._as(format or format_of(file)))
        elif hasattr(file, "write"):
            file.write(self._as(format or "png"))
        else:
            raise UsageError(
                f"the file is {file!r}; expected a path such as 'words.png', or what was opened for writing bytes."
            )

    def _as(self, format: Format) -> bytes:
        if format != "html":
            return self._rendered(format)
        require_for(format)
        from dolma_dask.figures.notebook import page

        return page(self._shown()).encode()

    def _rendered(self, to: Literal["png", "svg"]) -> bytes:
        require_for(to)
        from dolma_dask.figures.static import render

        shown = self._shown()
        return render(shown.title, shown.panels, shown.axis, shown.notes, to)

    def parts(self) -> Iterator[Part]:
        """Yield title, notes and numbers, as a terminal shows them."""
        shown = self._shown()
        yield Heading(shown.title)
        yield Sentences(self.notes)
        for panel in shown.panels:
            yield table_of(panel, panel.key if len(self.panels) > 1 else "")

    def __str__(self) -> str:
        return terminal_text(self.parts())

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        if note := missing("matplotlib", "a picture of a figure"):
            return {"text/plain": f"{self}\n\n{note}"}
        from dolma_dask.figures.notebook import mime_bundle

        return mime_bundle(self._shown())


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it."""
    partial = path.with_name(f".{uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise UsageError(
            f"{path} cannot be written: {error.strerror}; expected the path of a file in a folder that can be written. Choose another one."
        ) from error


def _check_local(path: str) -> None:
    if re.match(r"\w+:/", path):  # of a URL as a Path one slash is left
        raise UsageError(
            f"{path} is a URL; expected a local path. Open it and give the writer: with fsspec.open(url, 'wb') as out: figure.save(out, 'png')."
        )
    if "\0" in path:
        raise UsageError(
            f"{path!r} is no path of this machine: it has a null character; expected a local path."
        )
