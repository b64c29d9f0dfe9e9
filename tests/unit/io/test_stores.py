"""Stores: what is waited for, what is told, and that no credentials are repeated."""

import time
import traceback

import pytest

from dolma_dask.errors import (
    CorruptFileError,
    SourceChangedError,
    StoreAccessError,
    StoreError,
    StoreUnreachableError,
    UsageError,
)
from dolma_dask.io import files, stores
from dolma_dask.io.stores import check_url, explained, patiently

URL = "s3://bucket/folder/a.jsonl.gz"


def made(name: str, text: str = "why") -> Exception:
    """Return an error of a class of this name, as the libraries below have them."""
    return type(name, (Exception,), {})(text)


AWAY = made("EndpointConnectionError", 'Could not connect to "http://me:secret@127.0.0.1:9/b"')


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that only waiting moves."""
    now = [1000.0]
    monkeypatch.setattr(stores, "_given_up", {})
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return now


def failing(*errors: Exception):
    """Return a call that fails with each of these once, and its number of calls."""
    left, calls = list(errors), []

    def call() -> str:
        calls.append(1)
        if left:
            raise left.pop(0)
        return "done"

    return call, calls


def test_a_store_that_comes_back_is_waited_for():
    call, calls = failing(AWAY, AWAY, made("ConnectionClosedError"), AWAY, OSError(5, "InternalError"))
    assert patiently(URL, call) == "done"
    assert len(calls) == 6


def test_a_store_that_stays_away_is_given_up(clock):
    call, _ = failing(*[AWAY] * 100)
    with pytest.raises(
        StoreUnreachableError, match=r"s3://bucket/folder/a.*AWS_ENDPOINT_URL.*same command"
    ) as caught:
        patiently(URL, call)
    assert 0 <= clock[0] - 1000 - stores.PATIENCE_SECONDS <= 4
    assert "secret" not in str(caught.value)
    other, calls = failing(*[AWAY] * 100)
    with pytest.raises(StoreUnreachableError):
        patiently("s3://bucket/other", other)
    assert len(calls) == 1, "it was waited for already"
    elsewhere, calls = failing(AWAY)
    assert patiently("s3://elsewhere/other", elsewhere) == "done"


def test_the_client_of_hf_is_one_of_many():
    with pytest.raises(StoreUnreachableError, match=r"hf://datasets/a/b: the store does not answer"):
        patiently("hf://datasets/a/b", failing(*[made("ConnectError", "Name or service not known")] * 100)[0])


def test_patience_returns_with_the_store():
    with pytest.raises(StoreUnreachableError):
        patiently(URL, failing(*[AWAY] * 100)[0])
    assert patiently(URL, failing()[0]) == "done"
    assert patiently(URL, failing(AWAY, AWAY)[0]) == "done"


def test_a_connection_that_breaks_again_and_again_is_told():
    call, calls = failing(*[made("ClientPayloadError", "Response payload is not completed")] * 100)
    with pytest.raises(StoreError, match=r"a\.jsonl\.gz.*ClientPayloadError") as caught:
        patiently(URL, call)
    assert type(caught.value) is StoreError
    assert len(calls) == stores.BREAKS


@pytest.mark.parametrize(
    "error, told, words",
    [
        (PermissionError("Forbidden"), StoreAccessError, "AWS_ACCESS_KEY_ID"),
        (made("NoCredentialsError"), StoreAccessError, "AWS_ACCESS_KEY_ID"),
        (made("ParamValidationError", "Invalid\nbucket name"), UsageError, "Invalid bucket name"),
        (ValueError("Invalid endpoint: x"), UsageError, "AWS_ENDPOINT_URL"),
        (type("FileExpired", (OSError,), {})(), SourceChangedError, "written again"),
    ],
)
def test_what_a_store_refuses_is_said_in_one_line_and_at_once(error, told, words):
    call, calls = failing(error, error)
    with pytest.raises(told) as caught:
        patiently(URL, call)
    assert words in str(caught.value)
    assert URL in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(calls) == 1


@pytest.mark.parametrize(
    "error", [FileNotFoundError("x"), FileExistsError("x"), KeyError("x"), CorruptFileError("x")]
)
def test_other_errors_pass(error):
    with pytest.raises(type(error)) as caught:
        patiently(URL, failing(error)[0])
    assert caught.value is error


def test_lost_parts_are_worth_another_attempt():
    error = FileNotFoundError("NoSuchUpload")
    error.__cause__ = made("ClientError", "NoSuchUpload")
    assert type(explained(URL, error)) is StoreError


def test_a_missing_bucket_is_no_missing_file():
    error = FileNotFoundError("The specified bucket does not exist")
    error.__cause__ = made("ClientError", "NoSuchBucket")
    assert "no bucket 'bucket'" in str(explained(URL, error))


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAKEY:s3cr3t@bucket/a",
        "s3://AKIAKEY:s3/cr3t@bucket/a",
        "s3a://AKIAKEY:s3cr3t/bucket/a",
        "ftp://me:s3cr3t@host/a",
        "https://me:s3cr3t@host:80/a",
        "https://me:s3/cr3t@host:80/a",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url):
    for refuse in (check_url, files.normalize, files.list_files, files.stat, files.read_bytes):
        with pytest.raises(UsageError) as caught:
            refuse(url)
        assert not {"AKIAKEY", "s3cr3t", "cr3t", "me:"} & set(
            str(caught.value).replace("@", " ").replace("/", " ").split()
        )
        assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/a:b@c",
        "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/name/a",
        "hdfs://me@host:8020/a:b@c",
        "https://host:8080/a",
        "memory://a",
    ],
)
def test_other_urls_are_fine(url):
    check_url(url)


@pytest.mark.parametrize(
    "address",
    [
        "http://me:s3/cr3t@host:9000",
        "http://me:s3cr3t@host:9000",
        "http://me:s3#cr3t@host:9000",
        "http://me:s3 cr3t@host",
        "me:s3cr3t@host",
        "http://host:9000?token=s3cr3t",
    ],
)
@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_an_endpoint_with_a_password_is_refused_and_not_repeated(monkeypatch, name, address):
    monkeypatch.setenv(name, address)
    with pytest.raises(UsageError, match=f"{name} is not the address of a store") as caught:
        files.stat("s3://bucket/a")
    assert "cr3t" not in "".join(traceback.format_exception(caught.value))


def test_a_client_that_repeats_a_password_is_not_quoted():
    error = made("EndpointProviderError", "Custom endpoint `http://me:s3/cr3t@host` was not a valid URI")

    def refuse():
        raise error

    with pytest.raises(UsageError, match="not a valid URI") as caught:
        patiently("s3://bucket/a", refuse)
    assert "cr3t" not in "".join(traceback.format_exception(caught.value))


def test_one_slash_behind_a_store_is_no_local_folder():
    with pytest.raises(UsageError, match="one slash") as caught:
        files.normalize("s3:/me:s3cr3t@bucket/a")
    assert "s3cr3t" not in str(caught.value)
