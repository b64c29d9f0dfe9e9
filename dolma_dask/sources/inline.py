"""Taggers that run while documents are made of archives of the web, as in ``dolma warc``: some before the text of a page is found, which save that work for pages
that are left out, some on the text. What they find stands in ``attributes`` of each document.

All of them see the page as ``metadata.html``; those before the text see no text. Their numbers of whole documents are of the text in the end, so that a tagger finds the same before, after, and when `tag` runs it on documents with their pages.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from dolma_dask.errors import DataError
from dolma_dask.formats.attributes import AttributeColumn, encode_objects
from dolma_dask.io.records import TAGGER_FAILED, TOO_LARGE, too_large
from dolma_dask.sources.documents import Document
from dolma_dask.sources.pages import InlineTaggers
from dolma_dask.taggers.base import Tagger
from dolma_dask.taggers.scoring import cannot_do, score_each
from dolma_dask.text.columns import validity
from dolma_dask.text.kernels import Bools
from dolma_dask.text.view import TextView

PRE_SKIPPED, POST_SKIPPED = "pre_skip", "post_skip"
"""Why a page was left out, among what `Block.passed` counts."""


class Candidate(NamedTuple):
    """A record of which a document may be made."""

    id: str
    created: str
    metadata: bytes  # as taggers see it: an object in JSON, with the page
    document: Callable[[], "Document | Refusal"]  # made when the taggers before it have not left it out


class Refusal(NamedTuple):
    """Why there is no document."""

    reason: str
    expected: str
    raw: bytes | None = None  # None: the record


class Passed(NamedTuple):
    """A page that was left out, since taggers found nothing."""

    by: str


class _Found(NamedTuple):
    """What taggers have found in some pages."""

    columns: list[AttributeColumn]
    failed: dict[int, str]
    any: Bools  # (n,) whether there is anything

    def take(self, rows: Sequence[int]) -> list[AttributeColumn]:
        """Return the columns of some pages."""
        places = pa.array(rows, pa.int64())
        return [replace(column, values=column.values.take(places)) for column in self.columns]


def tagged(
    pages: Sequence[Candidate], taggers: InlineTaggers, source: str, max_record_bytes: int
) -> Iterator[Document | Refusal | Passed]:
    """Yield what becomes of each page: a document with its attributes, or why there is none."""
    made: dict[int, Document | Refusal | Passed] = {}
    before = _find(taggers, taggers.pre, [page.id for page in pages], source, [""] * len(pages), pages)
    for row in range(len(pages)):
        if row in before.failed:
            made[row] = Refusal(TAGGER_FAILED, before.failed[row])
        elif taggers.pre_skip and not before.any[row]:
            made[row] = Passed(PRE_SKIPPED)
        else:
            made[row] = pages[row].document()
    documents = {row: one for row, one in made.items() if isinstance(one, Document)}
    made |= _with_attributes(documents, pages, before, taggers, source, max_record_bytes)
    yield from (made[row] for row in range(len(pages)))


def _with_attributes(
    documents: dict[int, Document],
    pages: Sequence[Candidate],
    before: _Found,
    taggers: InlineTaggers,
    source: str,
    max_record_bytes: int,
) -> Iterator[tuple[int, Document | Refusal | Passed]]:
    """Yield documents with what taggers have found in them, by their number."""
    rows = list(documents)
    ids, texts = [documents[row].id for row in rows], [documents[row].text for row in rows]
    after = _find(taggers, taggers.post, ids, source, texts, [pages[row] for row in rows])
    own = {column.key for column in after.columns}  # a tagger of both counts as one after
    columns = [*(one for one in before.take(rows) if one.key not in own), *after.columns]
    objects = encode_objects(_view(texts).lengths, columns) if rows else ()
    for place, (row, attributes) in enumerate(zip(rows, objects, strict=True)):
        document = documents[row]
        raw = b"".join((document.raw[:-2], b',"attributes":', attributes.as_py(), b"}\n"))
        if place in after.failed:
            yield row, Refusal(TAGGER_FAILED, after.failed[place])
        elif taggers.post_skip and not after.any[place]:
            yield row, Passed(POST_SKIPPED)
        elif len(raw) > max_record_bytes:
            yield row, Refusal(TOO_LARGE, too_large(len(raw), max_record_bytes), document.raw)
        else:
            yield row, document._replace(raw=raw)


def _view(texts: Sequence[str | bytes]) -> TextView:
    utf8 = [text if isinstance(text, bytes) else text.encode() for text in texts]
    return TextView(pa.array(utf8, pa.large_binary()).view(pa.large_string()))


def _find(
    given: InlineTaggers,
    taggers: Sequence[Tagger],
    ids: Sequence[str],
    source: str,
    texts: Sequence[str | bytes],
    pages: Sequence[Candidate],
) -> _Found:
    """Return what taggers find in some pages."""
    found = _Found([], {}, np.zeros(len(pages), np.bool_))
    if not pages:
        return found
    view = _view(texts)
    columns = {
        "id": pa.array(ids, pa.large_string()),
        "source": pa.array([source] * len(pages), pa.large_string()),
        "text": view.texts,
        "created": pa.array([page.created for page in pages], pa.large_string()),
        "added": pa.array([""] * len(pages), pa.large_string()),
        "metadata": pa.array([page.metadata for page in pages], pa.large_binary()).view(pa.large_string()),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    for tagger in given.artifacts.all_loaded(taggers):
        own, failed = score_each(None, tagger, batch, view)
        found.columns.extend(own)
        found.failed.update(
            {row: f"{cannot_do(tagger)}: {_alone(error, row)}" for row, error in failed.items()}
        )
        for column in own:
            found.any[validity(column.values)] = True
    return found


def _alone(error: DataError, row: int) -> str:
    """Return what is wrong with a page, without its place among others, which nobody knows."""
    place = f"row {row} of the batch"
    return str(error).replace(f"{place}: ", "").replace(f" on {place}", "")
