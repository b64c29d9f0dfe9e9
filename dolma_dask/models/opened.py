"""Models are opened when a text is first scored, and stay open as long as the process: once for all taggers, threads and names of one content."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import RLock
from typing import Any, BinaryIO, TypeVar

import xxhash

from dolma_dask.errors import CorruptFileError
from dolma_dask.extras import require

Open = Callable[[], BinaryIO]
"""Opens a file of the user."""

Model = TypeVar("Model")
_PIECE = 8 << 20
_opened: dict[tuple[str, str], Any] = {}
_opening = RLock()


def model_of_package(package: str, name: str, load: Callable[[], Model]) -> Model:
    """Return the model `name` that comes with a package.

    Raises `UsageError`: the package is not installed.
    """
    with _opening:
        if (package, name) not in _opened:
            require(package, f"the model {name}")
            _opened[package, name] = load()
        model: Model = _opened[package, name]
        return model


def model_of_file(package: str, name: str, open_file: Open, load: Callable[[str], Model]) -> Model:
    """Return the model that a package makes of a file of the user's; `name` is what messages call it.

    Raises `CorruptFileError`: the file is no such model, or damaged. `UsageError`: the package is not installed.
    """
    with _opening:
        require(package, f"the model {name}")
        with _local(open_file) as (path, digest):
            if (package, digest) not in _opened:
                try:
                    _opened[package, digest] = load(path)
                except (OSError, RuntimeError, ValueError, MemoryError) as error:
                    found = str(error).replace(path, "it").strip() or type(error).__name__
                    raise CorruptFileError(
                        f"{name} cannot be opened by the package {package}: {found}; expected a whole model file that it has written. "
                        "Fetch or copy the file again."
                    ) from error
        model: Model = _opened[package, digest]
        return model


@contextmanager
def _local(open_file: Open) -> Iterator[tuple[str, str]]:
    """Give the path of a file on this machine and the digest of its bytes: packages open nothing else. What is elsewhere is copied for as long as it is opened."""
    digest = xxhash.xxh3_128()
    with open_file() as source:
        name = getattr(source, "name", None)
        if isinstance(name, str) and Path(name).is_file():
            while piece := source.read(_PIECE):
                digest.update(piece)
            yield name, digest.hexdigest()
            return
        with NamedTemporaryFile(prefix="dolma-dask-model-") as copy:
            while piece := source.read(_PIECE):
                digest.update(piece)
                copy.write(piece)
            copy.flush()
            yield copy.name, digest.hexdigest()
