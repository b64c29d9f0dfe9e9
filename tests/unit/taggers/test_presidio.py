"""Personal data by presidio: what is not seen beside the whole text."""

import socket

import pytest

from dolma_dask.models import opened
from dolma_dask.taggers.presidio import LONGEST_RUN
from dolma_dask.taggers.registry import get_tagger
from dolma_dask.testing.taggers import make_batch

pytest.importorskip("presidio_analyzer", reason="the package of the extra presidio is not installed")

CARD = "4012 8888 8888 1881"


def found(text):
    row = get_tagger("pii_presidio_v1")(make_batch(("text",), [text])).to_pylist()[0]
    return {
        name: value if name == "doc" else [text[span["start"] : span["end"]] for span in value or ()]
        for name, value in row.items()
    }


def test_each_type_has_its_spans():
    text = f"Wörter: a.b@example.org,\n+49 30 123456 or 10.0.0.1 or 2001:db8::1\nby {CARD}."
    assert found(text) == {
        "EMAIL_ADDRESS": ["a.b@example.org"],
        "PHONE_NUMBER": ["+49 30 123456"],
        "IP_ADDRESS": ["10.0.0.1", "2001:db8::1"],
        "CREDIT_CARD": [CARD],
        "doc": 4 / 14,
    }


def test_the_context_speaks_against_numbers():
    text = "isbn (212) 555-5555 and 10.0.0.1 and a@b.com " + "x" * 150 + f" to (212) 555-5555, {CARD[:-1]}2"
    row = found(text)
    assert (row["PHONE_NUMBER"], row["IP_ADDRESS"]) == (["(212) 555-5555"], [])
    assert row["EMAIL_ADDRESS"] == ["a@b.com"]
    assert row["CREDIT_CARD"] == [], "the check digit is wrong"


def test_domains_are_those_of_the_list_that_is_there(monkeypatch, tmp_path):
    def refuse(*_):
        raise AssertionError("asks the network")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(opened, "_opened", {})
    assert found("a@b.co.uk a@b.nowhere a@xn--p1ai.xn--p1ai")["EMAIL_ADDRESS"] == [
        "a@b.co.uk",
        "a@xn--p1ai.xn--p1ai",
    ]
    assert not [*tmp_path.iterdir()]


def test_long_runs_are_left_out():
    assert found("a" * (LONGEST_RUN - 6) + "@b.com")["EMAIL_ADDRESS"]
    assert not found("a" * (LONGEST_RUN - 5) + "@b.com")["EMAIL_ADDRESS"]
    assert found("字" * LONGEST_RUN + "。a@b.com，" + "字" * LONGEST_RUN)["EMAIL_ADDRESS"] == ["a@b.com"]


def test_digits_that_python_does_not_know_are_no_card():
    assert found("4" + "\U00011f50" * 15)["CREDIT_CARD"] == []
