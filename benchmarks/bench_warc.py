"""WARC files: their records alone, beside FastWARC; and their documents, beside the search for the text of the same pages. MB are those of the decompressed file."""

import html
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Goal, Job, benchmark
from dolma_dask.testing.archives import response, warc_file, warc_record

_MENU = "".join(f"<li><a href='/{number}.html' class='item'>Page {number}</a></li>" for number in range(60))
_HEAD = f"<style>{'a {}' * 300}</style><script>{'var x = 1;' * 500}</script>"
MAX_PAGES = 4_000


def pages(job: Job) -> Iterator[bytes]:
    """Yield documents of the corpus as web pages, with menus and scripts."""
    from dolma_dask.io.documents import DocumentFile

    left = MAX_PAGES
    for path in job.corpus.files():
        for block in DocumentFile(path, ("text",)):
            for text in block.batch.column("text").to_pylist()[:left]:
                body = "".join(
                    f"<div><p>{html.escape(part)}</p></div>" for part in text[:20_000].split("\n\n")
                )
                yield (
                    f"<!doctype html><html><head><meta charset=utf-8><title>T</title>{_HEAD}</head><body><ul>{_MENU}</ul><main>{body}</main>"
                    f"<footer>{_MENU}</footer></body></html>"
                ).encode()
                left -= 1
            if left <= 0:
                return


def written(job: Job) -> tuple[Path, int, float]:
    """Write a crawl of these pages, with requests and metadata; return its path, its pages and its MB."""
    records: list[bytes] = []
    for number, page in enumerate(pages(job)):
        where = {"warc_target_uri": f"https://www.example.org/{number}?b=1&a=2"}
        records.append(warc_record("request", b"GET / HTTP/1.1\r\n\r\n", **where))
        records.append(response(page, where["warc_target_uri"]))
        records.append(warc_record("metadata", b"fetchTimeMs: 100\r\n", **where))
    path = job.scratch / "crawl.warc.gz"
    path.write_bytes(warc_file(records))
    return path, len(records) // 3, sum(map(len, records)) / 1e6


@benchmark("warc-records", beside="warc-records-fastwarc", unit="WARC")
def records(job: Job) -> None:
    """Heads and blocks of a .warc.gz, with a member for each record."""
    from dolma_dask.io.stream import StoredFile, read_pieces
    from dolma_dask.io.warc import read_records

    path, count, size = written(job)
    with job.measured(size):
        pieces = read_pieces(StoredFile(str(path)), "gzip")
        found = sum(one.type == "response" for one in read_records(pieces, str(path), 64_000_000))
    assert found == count


@benchmark("warc-records-fastwarc", unit="WARC")
def records_by_fastwarc(job: Job) -> None:
    """The same by FastWARC."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    path, count, size = written(job)
    with job.measured(size), path.open("rb") as stream:
        found = 0
        for one in ArchiveIterator(stream):
            found += one.record_type == WarcRecordType.response
            one.reader.read()
    assert found == count


@benchmark("warc", goal=Goal("ratio", 1.5), beside="warc-text", unit="WARC")
def documents(job: Job) -> None:
    """Documents of a .warc.gz."""
    from dolma_dask.io.files import FileInfo
    from dolma_dask.sources import FieldMapping, open_sources

    path, count, size = written(job)
    mapping = FieldMapping(source_name="crawl")
    info = FileInfo(path.name, path.stat().st_size, "")
    with job.measured(size):
        (source,) = open_sources(str(job.scratch), [info], mapping)
        found = sum(block.num_rows for block in source.read())
    assert found == count


@benchmark("warc-text", unit="WARC")
def text_alone(job: Job) -> None:
    """The main text of the same pages by resiliparse, and nothing else."""
    from dolma_dask.sources.pages import text_of_html

    _, _, size = written(job)
    all_pages = [page.decode() for page in pages(job)]
    with job.measured(size):
        for page in all_pages:
            text_of_html(page, alt_texts=False)
