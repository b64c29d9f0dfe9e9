"""Records from which the tables of a report are made."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dolma_dask.journal import Record


class Recorded(Protocol):
    """A verb as the journal of a dataset tells it; the registry names a function for each verb that makes its tables of this."""

    @property
    def root(self) -> str:
        """Place of the output."""

    @property
    def records(self) -> "tuple[Record, ...]":
        """Its finished units."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters of its newest run."""

    def params_of(self, folder: str) -> Mapping[str, Any]:
        """Return parameters of the newest run that wrote into a folder."""
