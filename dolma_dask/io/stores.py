"""Stores behind URLs, through fsspec: refusals are explained in one line, and a store that is away for moments is waited for.

A call that fails for want of a connection is made again until `PATIENCE_SECONDS` have passed, so that a store may be restarted during a
run. Once a store was given up, the next calls of this process try once each, so that a run ends soon. Credentials come from the
environment or fsspec's configuration; a URL that holds some is refused, because journals and reports repeat URLs.
"""

import errno
import inspect
import os
import re
import time
from collections.abc import Callable, Mapping
from io import SEEK_SET, RawIOBase
from typing import Any, TypeVar, cast

from dolma_dask.errors import (
    DolmaDaskError,
    SourceChangedError,
    StoreAccessError,
    StoreError,
    StoreUnreachableError,
    UsageError,
)
from dolma_dask.extras import require

PATIENCE_SECONDS = 15.0
"""Longest absence of a store: a restart takes a few seconds. The waiting of its own client (5 to 8 s a call) counts."""

FIRST_WAIT_SECONDS = 0.25
"""Before the second call; it doubles with each, up to `LONGEST_WAIT_SECONDS`."""

LONGEST_WAIT_SECONDS = 4.0

BREAKS = 5
"""Calls whose connection breaks off before the file counts as what breaks it."""

BLOCK_BYTES = 8 << 20
"""Bytes requested from a store at a time: one request per file of ordinary size."""

Result = TypeVar("Result")

_BUCKETS = {"s3", "s3a", "gs", "gcs"}
"""Stores whose URLs begin with a bucket."""

_AWAY = {
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "ProxyConnectionError",
    "ReadTimeoutError",
    "ConnectionRefusedError",
    "ClientConnectorError",
    "ConnectError",  # of httpx, which reads hf://
    "ConnectTimeout",
    "ProxyError",
}
_BROKEN = {
    "BrokenPipeError",
    "ClientPayloadError",
    "ConnectionAbortedError",
    "ConnectionClosedError",
    "ConnectionResetError",
    "FSTimeoutError",
    "HTTPClientError",
    "IncompleteRead",
    "IncompleteReadError",
    "ResponseParserError",
    "ResponseStreamingError",
    "ServerDisconnectedError",
    "TimeoutError",
    "TransportError",
}
_NO_CREDENTIALS = {
    "NoCredentialsError",
    "PartialCredentialsError",
    "CredentialRetrievalError",
    "NoAuthTokenError",
    "ProfileNotFound",
    "TokenRetrievalError",
    "UnauthorizedSSOTokenError",
}
_REFUSED = (401, 403, 407)
_NOT_THERE = (404, 410)
_BUSY = (408, 429, *range(500, 600))
"""Answers of servers over http: one may not read it, there is none, and the next time may be another."""

_NO_ANSWER = {"TooManyRedirects", "InvalidURL"}
"""What the client of http says of addresses that a server names in place of a file."""

_WRONG_CALL = {"ParamValidationError", "InvalidRegionError", "UnknownServiceError", "EndpointProviderError"}
FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
"""Errors of the system where no space is left."""

_FILE_ERRORS = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)

_SECRETS = re.compile(r"(?<=://).*@", re.DOTALL)
"""A user and password in a URL; they may hold anything."""

_ENDPOINT = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?(/[\w./~-]*)?")
_SHOWN = 300
"""Characters of a store's own words that an error repeats."""

_given_up: dict[str, float] = {}
"""When a store (protocol and bucket) was last given up, on this process's clock."""


def filesystem(url: str) -> tuple[Any, str]:
    """Return the fsspec file system behind a remote `url`, and the path in it.

    Raises `UsageError`: nothing that is installed can open such a URL, or it holds credentials.
    """
    import fsspec

    check_url(url)
    settings = _settings(url)
    try:
        fs, path = fsspec.core.url_to_fs(url, **settings)
    except (ValueError, ImportError) as error:
        if url.partition("://")[0] in ("s3", "s3a"):
            require("s3fs", url)
        raise UsageError(
            f"{url} cannot be opened: {reason(error)}; expected a local path or the URL of a store that fsspec knows, such as "
            "s3://bucket/folder. Correct it, or install what the store needs."
        ) from error
    if hasattr(fs, "retries"):
        fs.retries = 1  # its client tries five times, and `patiently` again
    return fs, path


def _settings(url: str) -> dict[str, Any]:
    """Return what a store is opened with besides the user's settings.

    Files are read in ranges, for which S3 has no checksums; some other stores send the checksum of the whole file with them.

    Raises `UsageError`: the address of the store is none, or holds credentials.
    """
    if url.partition("://")[0] not in ("s3", "s3a"):
        return {}
    import fsspec

    of_user = fsspec.config.conf.get("s3", {})
    _check_endpoints(
        url, {**os.environ, "endpoint_url": of_user.get("endpoint_url"), **of_user.get("client_kwargs", {})}
    )
    if "AWS_RESPONSE_CHECKSUM_VALIDATION" in os.environ:
        return {}
    set_by_user = of_user.get("config_kwargs", {})
    return {"config_kwargs": {"response_checksum_validation": "when_required", **set_by_user}}


def _check_endpoints(url: str, settings: Mapping[str, Any]) -> None:
    """Refuse addresses that the client would refuse with all that they hold."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "endpoint_url"):
        given = settings.get(name)
        if given and not _ENDPOINT.fullmatch(str(given)):
            raise UsageError(
                f"{url}: {name} is not the address of a store (not shown here, since it may hold a password); expected an address such as "
                f"http://host:9000, without user, password or query. Give keys by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )


def check_url(url: str) -> None:
    """Refuse a URL with a password or key in it.

    Raises `UsageError`: there is one; the message does not repeat it.
    """
    protocol, _, rest = url.partition("://")
    authority = rest.partition("/")[0]
    if protocol in _BUCKETS:
        is_key = ":" in authority and not authority.startswith("arn:")
    else:  # a password may hold a slash, and a port is a number
        is_key = re.match(r"[^/@]*:(?!\d*/)[^\s]*@", rest) is not None
    if is_key:
        kept = rest.rpartition("@")[2] if "@" in rest else "..."
        raise UsageError(
            f"{protocol}://***@{kept}: credentials in a URL would be repeated by journals and reports; expected them beside it. "
            f"{_credentials_hint(protocol)}"
        )


def patiently(url: str, call: Callable[[], Result]) -> Result:
    """Return what `call` returns; call again while the store of `url` is away, and explain in one line what it refuses.

    Raises `StoreUnreachableError` after `PATIENCE_SECONDS`, `StoreAccessError` for refused credentials or a missing bucket, `StoreError`
    when the connection breaks again and again, and `FileNotFoundError`.
    """
    started = time.monotonic()
    breaks = tries = 0
    while True:
        try:
            result = call()
        except Exception as raised:  # noqa: BLE001 - it is raised again, or explained
            error = _told_of(url, raised)
            waited = time.monotonic() - started
            tries, breaks = tries + 1, breaks + (not _is_away(error))
            if not _is_worth_another(url, error, breaks, waited):
                explanation = explained(url, error, waited)
                if explanation is None:
                    raise error from error.__cause__
                raise explanation from (None if _SECRETS.search(str(error)) else error)
        else:
            _given_up.pop(_store_of(url), None)
            return result
        time.sleep(min(FIRST_WAIT_SECONDS * 2 ** (tries - 1), LONGEST_WAIT_SECONDS))


def _told_of(url: str, error: Exception) -> Exception:
    """Return what an error is about: fsspec says of some that fail over http that there is no such file, and of some that are gone only what the server answers."""
    cause = error.__cause__
    if not _is_http(url):
        return error
    if _status(error) in _NOT_THERE:
        missing = FileNotFoundError(url)
        missing.__cause__ = error
        return missing
    is_told = isinstance(error, FileNotFoundError)
    if not is_told or not isinstance(cause, Exception) or isinstance(cause, FileNotFoundError):
        return error
    return error if _status(cause) in _NOT_THERE else cause


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _status(error: BaseException) -> int:
    """Return the status that a server answers; 0: it does not answer."""
    return int(getattr(error, "status", 0) or 0) if "ClientResponseError" in _names(error) else 0


def _is_worth_another(url: str, error: Exception, breaks: int, waited: float) -> bool:
    if isinstance(error, DolmaDaskError) or not is_transient(error):
        return False
    if not _is_away(error):
        return breaks < BREAKS
    last = _given_up.get(_store_of(url))
    is_fresh = last is None or time.monotonic() - last > 4 * PATIENCE_SECONDS
    return is_fresh and waited < PATIENCE_SECONDS


def is_transient(error: BaseException) -> bool:
    """Tell whether an error of a store or disk may be gone the next time: a connection, not a missing file."""
    names = _names(error)
    if names & (_AWAY | _BROKEN) or _status(error) in _BUSY:
        return True
    is_final = isinstance(error, (*_FILE_ERRORS, PermissionError)) or "FileExpired" in names
    return isinstance(error, OSError) and not is_final and error.errno not in FULL


def _is_away(error: BaseException) -> bool:
    return bool(_names(error) & _AWAY)


def _names(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


def explained(url: str, error: Exception, waited: float = 0.0) -> DolmaDaskError | None:
    """Return `error` with what happened, where, what was expected and what to do; None if others know better."""
    names = _names(error)
    protocol = url.partition("://")[0]
    if isinstance(error, DolmaDaskError):
        return None
    if names & _NO_CREDENTIALS or isinstance(error, PermissionError):
        return StoreAccessError(
            f"{url}: access refused ({reason(error)}); expected credentials that may read and write there. {_credentials_hint(protocol)}",
            url=url,
        )
    if isinstance(error, FileNotFoundError):
        return _not_found(url, error)
    if status := _status(error):
        return _answered(url, error, status)
    if _is_http(url) and names & _NO_ANSWER:
        return StoreError(
            f"{url}: the server sends from address to address, to none that gives the file ({reason(error)}); expected the file. Correct the "
            "address, or look at it in a browser.",
            url=url,
        )
    if names & _WRONG_CALL or (isinstance(error, ValueError) and "endpoint" in str(error)):
        return UsageError(
            f"{url}: not an address that the store can have ({reason(error)}); expected {protocol}://BUCKET/FOLDER and, in AWS_ENDPOINT_URL, an "
            "address such as http://host:9000. Correct it.",
            url=url,
        )
    if "FileExpired" in names:
        return SourceChangedError(
            f"{url} was written again while it was read; expected input files to stay as they are. Run again when nobody writes to them.",
            url=url,
        )
    if _is_away(error):
        _given_up[_store_of(url)] = time.monotonic()
        return StoreUnreachableError(
            f"{url}: the store does not answer ({reason(error)}; tried for {waited:.0f} s); expected it to be there. Look at its address "
            "(AWS_ENDPOINT_URL for S3) and the network, then run the same command again: it does only what is left.",
            url=url,
        )
    if is_transient(error):
        return StoreError(
            f"{url}: the store fails again and again ({reason(error)}); expected whole answers. Run the same command again: it does only what is "
            "left.",
            url=url,
        )
    return None


def _answered(url: str, error: Exception, status: int) -> StoreError:
    """Explain an answer that is no file."""
    said = reason(f"{status} {getattr(error, 'message', '')}".rstrip())
    if status in _REFUSED:
        return StoreAccessError(
            f"{url}: access refused: the server answers {said}; expected that it gives the file. Correct the address, or fetch the file first: "
            "dolma-dask download, which takes logins from ~/.netrc.",
            url=url,
        )
    if status in _BUSY:
        return StoreError(
            f"{url}: the server answers {said} again and again; expected the file. Run the same command again later: it does only what is left.",
            url=url,
        )
    return StoreError(
        f"{url}: the server answers {said}; expected the file. Correct the address, or look at it in a browser.",
        url=url,
    )


def _not_found(url: str, error: FileNotFoundError) -> StoreError | None:
    """Explain what is missing besides a file."""
    cause = repr(error.__cause__)
    if "NoSuchBucket" in cause:
        return no_bucket(url)
    if "NoSuchUpload" in cause:
        return StoreError(
            f"{url}: the store has lost the parts of an upload ({reason(error)}); expected it to keep them until they are complete. Run the "
            "same command again: it does only what is left.",
            url=url,
        )
    return None


def no_bucket(url: str) -> StoreAccessError:
    """Return the error for a URL whose bucket is not there."""
    bucket = _store_of(url).partition("://")[2]
    at = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "the store"
    return StoreAccessError(
        f"{url}: there is no bucket {bucket!r} at {_SECRETS.sub('', at)}; expected one that exists. Correct the name or the address "
        "(AWS_ENDPOINT_URL for S3), or make the bucket.",
        url=url,
    )


def _credentials_hint(protocol: str) -> str:
    if protocol in ("s3", "s3a"):
        return (
            "Give them by AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, and the address of a store that is not Amazon's by "
            "AWS_ENDPOINT_URL, where the workers run too."
        )
    name = re.sub(r"[^A-Z0-9]", "_", protocol.upper())
    return f"Give them by what fsspec takes for {protocol}, such as the variables FSSPEC_{name}_..., where the workers run too."


def reason(error: BaseException | str) -> str:
    """Return a store's own words on one line, without anything before an ``@`` in a URL, and without what a terminal would obey."""
    words = " ".join(str(error).split()) or "no reason given"
    text = words if isinstance(error, str) else f"{type(error).__name__}: {words}"
    return "".join(filter(str.isprintable, _SECRETS.sub("", text)))[:_SHOWN]


def _store_of(url: str) -> str:
    protocol, _, rest = url.partition("://")
    return f"{protocol}://{rest.partition('/')[0]}"


def is_s3(fs: Any) -> bool:
    """Tell whether a file system is s3fs, some of whose calls take options of its own."""
    return "s3" in ([fs.protocol] if isinstance(fs.protocol, str) else fs.protocol)


def at_once(fs: Any) -> dict[str, int]:
    """Return the option with which newer s3fs reads a whole file in one request, and does not ask for its size first."""
    takes = is_s3(fs) and "max_concurrency" in inspect.signature(fs._cat_file).parameters
    return {"max_concurrency": 1} if takes else {}


_there: set[tuple[Any, str]] = set()
"""Buckets that were there when this process looked."""


def check_bucket(url: str) -> None:
    """Check that the bucket of a URL is there; where nothing is listed, it may be missing altogether.

    Raises `StoreAccessError`: there is none.
    """
    if url.partition("://")[0] not in _BUCKETS:
        return
    fs, path = filesystem(url)
    bucket = path.partition("/")[0]
    if (fs, bucket) in _there:
        return
    try:
        patiently(url, lambda: fs.info(bucket))
        _there.add((fs, bucket))
    except FileNotFoundError:
        raise no_bucket(url) from None
    except StoreAccessError:
        return  # one may list folders without being allowed to look at the bucket


class RemoteFile(RawIOBase):
    """A file of a store, opened for reading; a read that fails is made again from where it was. `scattered`: nothing is read ahead."""

    def __init__(self, url: str, scattered: bool = False) -> None:
        super().__init__()
        fs, path = filesystem(url)
        self._url = url
        cache = "none" if scattered else "readahead"

        def opened() -> Any:
            fs.invalidate_cache(path)  # what was listed may be outdated
            return fs.open(path, "rb", block_size=BLOCK_BYTES, cache_type=cache)

        self._handle = patiently(url, opened)
        self._look = lambda: fs.info(path)

    def info(self) -> dict[str, Any]:
        """Return what the store said of the file when it was opened."""
        details = getattr(self._handle, "details", None)
        return cast(dict[str, Any], details or patiently(self._url, self._look))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._handle.tell())

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        return int(self._handle.seek(offset, whence))

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes; all that follow without one."""
        at = self._handle.tell()

        def once() -> bytes:
            self._handle.seek(at)
            return cast(bytes, self._handle.read(-1 if size is None else size))

        return patiently(self._url, once)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` as far as the file goes; return the number of bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._handle.close()
        super().close()
