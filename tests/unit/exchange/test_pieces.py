"""Pieces of files, from a disk and from a store: the bytes that were asked for, in order, or an error that names the file."""

import pytest

from dolma_dask.errors import CorruptFileError
from dolma_dask.exchange import pieces
from dolma_dask.exchange.pieces import Piece, read_pieces
from dolma_dask.io import files
from dolma_dask.io.publish import publish

DATA = bytes(range(256)) * 4


@pytest.fixture
def urls(root):
    urls = [files.join(root, f"{number}.bin") for number in range(3)]
    for number, url in enumerate(urls):
        with publish(url) as out:
            out.write(DATA[number:])
    return urls


@pytest.mark.parametrize("requests", [1, 2, 64])
def test_pieces_come_in_order(urls, requests, monkeypatch):
    monkeypatch.setattr(pieces, "REQUESTS", requests)
    wanted = [(0, 5, 10), (0, 100, 0), (0, 0, 1), (2, 300, 500), (1, 7, 3), (0, 5, 10)]
    found = [bytes(view) for view in read_pieces([Piece(urls[at], *rest) for at, *rest in wanted])]
    assert found == [DATA[at + offset : at + offset + size] for at, offset, size in wanted]


def test_no_pieces():
    assert list(read_pieces([])) == []


@pytest.mark.parametrize("at", [0, 1, 2])
def test_files_that_are_gone_or_end_before(urls, at):
    wanted = [Piece(url, 500, 500) for url in urls]
    files.remove(urls[at])
    with pytest.raises(CorruptFileError, match=f"{at}.bin is gone.*Run the same command again"):
        list(read_pieces(wanted))
    with publish(urls[at]) as out:
        out.write(DATA[:600])
    with pytest.raises(CorruptFileError, match=f"{at}.bin is damaged: found its end at byte 600"):
        list(read_pieces(wanted))
    assert files.stat(urls[at]) is None, "or the next run would take it for finished"
