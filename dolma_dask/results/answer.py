"""The outcome of a verb or a question: its parts are said once, and shown in a terminal and in a notebook."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from dolma_dask.results import notebook, terminal
from dolma_dask.results.parts import Part
from dolma_dask.results.plain import plain


class Answer:
    """Base of outcomes; a dataclass that has `parts` prints, shows itself in notebooks, and becomes JSON."""

    @property
    def exit_status(self) -> int:
        """0 unless something is wrong."""
        return 0

    def parts(self) -> Iterator[Part]:
        """Yield what a person should see, in its order."""
        raise NotImplementedError

    def to_json(self) -> dict[str, Any]:
        """Return all that is known as JSON-able values."""
        known = {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {**known, "exit_status": self.exit_status}

    def __str__(self) -> str:
        return terminal.text(self.parts())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return notebook.shown(self.parts())
