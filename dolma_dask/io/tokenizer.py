"""Opening of a tokenizer wherever it lies: a local file is read by each worker, one in a store or on the hub once, and its text travels with the work."""

from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path

from dolma_dask.errors import UsageError
from dolma_dask.io import files
from dolma_dask.io.hub import model_of, read_file
from dolma_dask.tokens.engine import TokenEngine, load_tokenizer
from dolma_dask.tokens.foreign import HEAD_BYTES, advice
from dolma_dask.tokens.specials import CONFIG_NAME

FILE = "tokenizer.json"
"""Name of the file in the folder of a tokenizer."""


def open_tokenizer(location: str | PathLike[str]) -> TokenEngine:
    """Open a tokenizer of the ``tokenizers`` library by the path or URL of a JSON file or of a folder with ``tokenizer.json``, by the name of a
    model on the Hugging Face hub (``EleutherAI/pythia-70m``, ``EleutherAI/pythia-70m@main``), or by its JSON text.

    A path that is there comes before a model of that name. Raises `UsageError`: no such file or model, not JSON, not a tokenizer, or one that draws at random.
    """
    location = fspath(location)
    is_text = location.lstrip().startswith("{")
    if not is_text and (model := model_of(location)) and not Path(location).exists():
        return _of_model(*model)
    if is_text or files.is_local(location):
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


@lru_cache(maxsize=8)  # a command opens its tokenizer several times
def _of_model(model: str, revision: str | None) -> TokenEngine:
    found = read_file(model, revision, FILE)
    if found is None:
        raise UsageError(
            f'tokenizer {model}: the model has no {FILE} on the hub; expected one. Convert what it has (package transformers): python -c "from transformers import '
            f"AutoTokenizer; AutoTokenizer.from_pretrained('{model}').save_pretrained('converted')\", and take the folder converted."
        )
    config = read_file(model, revision, CONFIG_NAME)
    return load_tokenizer(found[1].decode(), origin=found[0], config=config and config[1])


def _text(url: str) -> str:
    content = files.read_bytes(url)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        what = advice(content[:HEAD_BYTES], url) or str(error)
        raise UsageError(
            f"tokenizer {url} cannot be read: {what}; expected a JSON file of the tokenizers library.",
            tokenizer=url,
        ) from None
