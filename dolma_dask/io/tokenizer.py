"""Opening of a tokenizer wherever it lies: a local file is read by each worker, one in a store once, and its text travels with the work."""

from os import PathLike, fspath

from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.tokens.engine import TokenEngine, load_tokenizer
from dolma_dask.tokens.specials import CONFIG_NAME

FILE = "tokenizer.json"
"""Name of the file in the folder of a tokenizer."""


def open_tokenizer(location: str | PathLike[str]) -> TokenEngine:
    """Open a tokenizer of the ``tokenizers`` library by the path or URL of a JSON file or of a folder with ``tokenizer.json``, or by its
    JSON text.

    Raises `UsageError`: no such file, not JSON, not a tokenizer, or one that draws at random.
    """
    location = fspath(location)
    if location.lstrip().startswith("{") or files.is_local(location):
        return load_tokenizer(location)
    url = find_tokenizer(location)
    if url is None:
        raise UsageError(
            f"tokenizer {location} does not exist; expected a JSON file, or a folder with {FILE}.",
            tokenizer=location,
        )
    config = files.join(url.rpartition("/")[0], CONFIG_NAME)
    known = files.read_bytes(config) if files.stat(config) is not None else None
    return load_tokenizer(_text(url), origin=url, config=known)


def find_tokenizer(location: str) -> str | None:
    """Return the file of a tokenizer that is named by itself or by its folder; None if there is none."""
    url = files.normalize(location)
    candidates = (url, files.join(url, FILE))
    return next((candidate for candidate in candidates if files.stat(candidate) is not None), None)


def _text(url: str) -> str:
    try:
        return files.read_bytes(url).decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"tokenizer {url} cannot be read: {error}; expected a JSON file of the tokenizers library.",
            tokenizer=url,
        ) from None
