"""What lines up after a takedown, and would say something else if it was made again: it is named, so that nobody takes it for new."""

from collections.abc import Iterable, Iterator, Sequence

from dolma_dask.formats import layout
from dolma_dask.journal import Journal
from dolma_dask.verbs.remove.changes import Change
from dolma_dask.verbs.remove.listing import Listing
from dolma_dask.verbs.remove.records import SUMS
from dolma_dask.verbs.remove.summary import Left

_AGAIN = {
    "quantiles": "quantiles and thresholds of documents that are gone too: the same quantiles makes them anew",
    "validate": "a check of files that have changed: the same validate looks at these again",
    "report": "a page of documents that are gone too: the same report makes it anew",
    "dedupe": "copies of documents that are gone stay marked as copies: the same dedupe with --overwrite keeps one of them",
    "reshard": "rows of documents in their shards are those before the takedown, and files may be smaller: the same reshard with --overwrite makes them anew",
    "hdf5": "detokenized bytes and characters in data_params.json count documents that are gone too",
}


def stale_after(listing: Listing, changes: Sequence[Change]) -> Iterator[Left]:
    """Yield what is stale."""
    datasets = _roots(change.path for change in changes if change.what == "documents")
    if not changes:
        return
    for journal in listing.journals:
        root = listing.place_of(journal)
        if journal.verb in SUMS and (root in datasets or _reads(journal, changes)):
            yield from (Left(f"{root}/{path}".strip("/"), _AGAIN[journal.verb]) for path in _results(journal))
        elif journal.verb == "dedupe" and root in datasets:
            yield Left(f"{root}/{layout.ATTRIBUTES}".strip("/"), _AGAIN["dedupe"])
        elif journal.verb == "hdf5" and any(
            change.what == "HDF5 rows" and change.path.startswith(root) for change in changes
        ):
            yield Left(f"{root}/data_params.json".strip("/"), _AGAIN["hdf5"])
        elif journal.verb == "reshard" and any(
            change.what == "tokens" and f"/{change.path}".startswith(f"/{root}/".replace("//", "/"))
            for change in changes
        ):
            yield Left(root or ".", _AGAIN["reshard"])
    for path in listing.infos:
        mark = f"/{layout.SEGMENTS}/" in f"/{path}"
        if mark and path.endswith("/segment.json"):
            yield Left(
                path,
                "an index of dedupe has keys of documents that are gone, and no ids or texts: they stay marked as seen",
            )


def _roots(paths: Iterable[str]) -> set[str]:
    return {f"/{path}".partition(f"/{layout.DOCUMENTS}/")[0].strip("/") for path in paths}


def _results(journal: Journal) -> list[str]:
    files = sorted({file.path for record in journal.records.values() for file in record.files})
    return files or [f"{layout.JOURNAL}/{journal.verb}"]


def _reads(journal: Journal, changes: Sequence[Change]) -> bool:
    """Tell whether what a journal speaks of was made of a file that has changed."""
    before = {(change.before.checksum, change.before.bytes) for change in changes}
    return any(
        (one.checksum, one.bytes) in before for record in journal.records.values() for one in record.inputs
    )
