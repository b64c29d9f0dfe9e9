"""list: the taggers, built in and from plug-ins."""

from dataclasses import asdict, dataclass
from typing import Any

from dolma_dask.display import text_table
from dolma_dask.taggers.registry import list_taggers


@dataclass(frozen=True)
class TaggerRow:
    """One tagger as it is listed."""

    name: str
    version: str
    reads: tuple[str, ...]  # document columns that it takes
    origin: str  # where it comes from: built in, or a plug-in's name
    description: str


@dataclass(frozen=True)
class TaggerTable:
    """All taggers; prints as a table."""

    taggers: tuple[TaggerRow, ...]
    exit_status: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON-able values."""
        return {"taggers": [asdict(row) for row in self.taggers]}

    def __str__(self) -> str:
        rows = [
            (row.name, row.version, ", ".join(row.reads), row.origin, row.description) for row in self.taggers
        ]
        return "\n".join(text_table([("name", "version", "reads", "from", "what"), *rows]))


def show_taggers() -> TaggerTable:
    """List the taggers, built in and from plug-ins: name, attributes, what it is.

    Example: dolma-dask list

    Returns
    -------
    TaggerTable
    """
    return TaggerTable(
        tuple(
            TaggerRow(item.name, str(item.version), tuple(item.reads), item.origin, item.description)
            for item in list_taggers()
        )
    )
