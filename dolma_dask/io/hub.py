"""Files of models on the Hugging Face hub, by name: ``EleutherAI/pythia-70m``, with a revision ``EleutherAI/pythia-70m@main``.

`huggingface_hub` finds them, in its cache where it can: its variables (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN) and the login of its command are honoured. A token is
never written or shown.
"""

import re
from pathlib import Path

from dolma_dask.errors import UsageError

_NAME = re.compile(r"(?:hf://(?:models/)?)?([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@([\w./-]+))?")
_SNAPSHOT = re.compile(r"snapshots[/\\]([^/\\]+)[/\\]")


def model_of(location: str) -> tuple[str, str | None] | None:
    """Return the model that a location names, and its revision; None if it cannot be a name on the hub."""
    found = _NAME.fullmatch(location)
    is_file = found is None or found[1].endswith((".json", ".model", ".gguf", ".tiktoken", ".txt"))
    return None if found is None or is_file else (found[1], found[2])


def read_file(model: str, revision: str | None, name: str) -> tuple[str, bytes] | None:
    """Return the place of a file of a model, with the commit that was found, and what it holds; None if the model has no such file.

    Raises `UsageError`: there is no such model or revision, or it may not be read; the hub cannot be reached, and the cache has it not.
    """
    import huggingface_hub  # 0.3 CPU-seconds
    from huggingface_hub import errors

    try:
        path = huggingface_hub.hf_hub_download(model, name, revision=revision)
    except errors.RemoteEntryNotFoundError:
        return None
    except errors.HFValidationError as error:
        raise UsageError(_message(model, revision, name, error)) from error
    except (errors.LocalEntryNotFoundError, OSError) as error:
        known = huggingface_hub.try_to_load_from_cache(model, name, revision=revision)
        if known is not None and not isinstance(known, str):  # the cache knows that there is none
            return None
        raise UsageError(_message(model, revision, name, error)) from error
    commit = _SNAPSHOT.search(path)
    return f"hf://{model}@{commit[1] if commit else revision or 'main'}/{name}", Path(path).read_bytes()


def _message(model: str, revision: str | None, name: str, error: Exception) -> str:
    from huggingface_hub import constants, errors

    whole = model if revision is None else f"{model}@{revision}"
    if isinstance(error, errors.RevisionNotFoundError):
        what = f"the model has no revision {revision!r}"
    elif isinstance(error, errors.GatedRepoError):
        what = "access has to be asked for on its page, and a token be given: HF_TOKEN, or hf auth login"
    elif isinstance(error, errors.RepositoryNotFoundError):
        what = "there is no such model, or it is private and no token with access was given (HF_TOKEN, or hf auth login)"
    elif isinstance(error, errors.LocalEntryNotFoundError):
        off = ", as HF_HUB_OFFLINE asks" if constants.HF_HUB_OFFLINE else ""
        what = f"the hub was not reached{off}, and the cache {constants.HF_HUB_CACHE} has no {name} of it"
    else:
        what = " ".join(str(error).split("\n")[0].split())
    return (
        f"tokenizer {whole} is no file or folder here, and as a model on {constants.ENDPOINT}: {what}. Expected a tokenizer.json, a folder that has one, or a model "
        "whose repository has one, such as EleutherAI/pythia-70m."
    )
