"""A scheduler that runs already, by its address."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from dolma_dask.errors import UsageError

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 30.0
"""How long a scheduler may take to answer."""


@contextmanager
def remote_client(address: str, *, default: bool = False) -> Iterator["Client"]:
    """Connect to the scheduler at `address`; with `default` Dask's own calls go there too."""
    from distributed import Client

    try:
        client = Client(address, set_as_default=default, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address} ({error}); expected one that is running. Start it, or leave --scheduler out."
        ) from error
    with closing(client):
        yield client
