"""Files of models on the Hugging Face hub, by name: ``EleutherAI/pythia-70m``, with a revision ``EleutherAI/pythia-70m@main``.

`huggingface_hub` finds them, in its cache where it can: its variables (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN) and the login of its command are honoured. A token is
never written or shown.
"""

import re
import socket
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dolma_dask.errors import UsageError

_NAME = re.compile(r"(?:hf://(?:models/)?)?([A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?:@([\w./-]+))?")
CONNECT_SECONDS = 5
"""How long a machine may take to accept a connection: enough for two packets that are lost, which are sent again after 1 and 3 seconds."""

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
    from huggingface_hub import constants, errors

    try:
        known = huggingface_hub.try_to_load_from_cache(model, name, revision=revision)
    except errors.HFValidationError as error:
        raise UsageError(_message(model, revision, name, error)) from error
    # the library asks a hub that it does not reach six times, for 23 seconds, or minutes where packets vanish, and has no setting for it. A hub that is
    # slow accepts connections all the same, since its system or a network in front does that: then the library waits and repeats, as ever
    if not isinstance(known, str) and not constants.HF_HUB_OFFLINE and not _accepts(constants.ENDPOINT):
        if known is None:
            raise UsageError(_message(model, revision, name, None))
        return None  # the cache knows that there is none
    try:
        path = huggingface_hub.hf_hub_download(model, name, revision=revision)
    except errors.RemoteEntryNotFoundError:
        return None
    except Exception as error:  # what the transport raises has another name in each version of the library
        if known is None or (isinstance(known, str) and isinstance(error, OSError)):
            raise UsageError(_message(model, revision, name, error)) from error
        if not isinstance(known, str):
            return None
        # a proxy refuses, or the connection broke: there the library does not look into its cache
        path = known
    commit = _SNAPSHOT.search(path)
    return f"hf://{model}@{commit[1] if commit else revision or 'main'}/{name}", Path(path).read_bytes()


def _accepts(endpoint: str) -> bool:
    """Tell whether a server, or the proxy for it, accepts a connection."""
    asked = urlsplit(endpoint)
    proxies = {} if proxy_bypass(asked.hostname or "") else getproxies()
    server = urlsplit(proxies.get(asked.scheme) or proxies.get("all") or endpoint)
    if server.hostname is None:  # the library says what is wrong with it
        return True
    port = server.port or (80 if server.scheme == "http" else 443)
    accepted = Event()
    families = (socket.AF_INET, socket.AF_INET6)  # at once: packets of one of them may vanish
    # threads that nobody waits for: a name that is looked up in vain can take longer than the limit
    tries = [
        Thread(target=_connect, args=(server.hostname, port, family, accepted), daemon=True)
        for family in families
    ]
    for one in tries:
        one.start()
    until = monotonic() + CONNECT_SECONDS
    while not accepted.wait(0.01) and monotonic() < until and any(one.is_alive() for one in tries):
        pass
    return accepted.is_set()


def _connect(host: str, port: int, family: socket.AddressFamily, accepted: Event) -> None:
    with suppress(OSError):
        for *_, address in socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[:1]:
            socket.create_connection((str(address[0]), port), CONNECT_SECONDS).close()
            accepted.set()


def _message(model: str, revision: str | None, name: str, error: Exception | None) -> str:
    from huggingface_hub import constants, errors

    whole = model if revision is None else f"{model}@{revision}"
    if isinstance(error, errors.RevisionNotFoundError):
        what = f"the model has no revision {revision!r}"
    elif isinstance(error, errors.GatedRepoError):
        what = "access has to be asked for on its page, and a token be given: HF_TOKEN, or hf auth login"
    elif isinstance(error, errors.RepositoryNotFoundError):
        what = "there is no such model, or it is private and no token with access was given (HF_TOKEN, or hf auth login)"
    elif error is None or isinstance(error, errors.LocalEntryNotFoundError):
        off = ", as HF_HUB_OFFLINE asks" if constants.HF_HUB_OFFLINE else ""
        what = f"the hub was not reached{off}, and the cache {constants.HF_HUB_CACHE} has no {name} of it"
    else:
        what = " ".join(str(error).split("\n")[0].split())
    return (
        f"tokenizer {whole} is no file or folder here, and as a model on {constants.ENDPOINT}: {what}. Expected a tokenizer.json, a folder that has one, or a model "
        "whose repository has one, such as EleutherAI/pythia-70m."
    )
