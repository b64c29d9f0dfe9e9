"""Some members of the largest clusters of similar documents, with their differences to the survivor, for the page.

Cost: the table of clusters is read twice in columns for each cluster, and the shards of its first members up to their rows.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from dolma_dask.dataset import as_recorded, open_dataset
from dolma_dask.display import counted, isolated, without_blank_lines
from dolma_dask.errors import DolmaDaskError
from dolma_dask.journal import Record
from dolma_dask.pages.history import History, Step
from dolma_dask.pages.model import ClusterExample, MemberExample
from dolma_dask.reading.together import datasets_in
from dolma_dask.results.summary import Summary

if TYPE_CHECKING:
    from dolma_dask.minhash.schemes import MinHash
    from dolma_dask.reading.clusters import ClusterMember
    from dolma_dask.verbs.dedupe.summary import ClusterRow

MAX_CLUSTERS = 5
"""Clusters that are shown: the largest whose documents are not all equal."""

MAX_COPIES = 2
"""Copies that are shown of each, besides the survivor."""

MAX_READ = 5
"""Members of a cluster whose texts are read, to find copies that differ."""


class SimilarSet(Struct, frozen=True):
    """An attribute set of near duplicates."""

    root: str  # of its dataset
    reading: Mapping[str, Any]  # how its documents are read, see `open_dataset`
    name: str
    minhash: "MinHash"
    record: Record  # of the whole set
    clusters: tuple["ClusterRow", ...]  # to show


def similar_sets(history: History) -> tuple[SimilarSet, ...]:
    """Return the sets of near duplicates of a history."""
    return tuple(one for step in history.steps if step.verb == "dedupe" for one in _sets(step))


def _sets(step: Step) -> Iterator[SimilarSet]:
    # most pages are of datasets without near copies
    from dolma_dask.verbs.dedupe.fuzzy.comparison import comparison_of
    from dolma_dask.verbs.dedupe.summary import summarize

    for whole in step.records:
        if "comparison" not in whole.info:
            continue
        name = whole.unit.split("/")[1]
        records = [
            record for record in step.records if record.unit.startswith(whole.unit) and record != whole
        ]
        listing = {record.shard: number for number, record in enumerate(records)}
        clusters = summarize(Summary("dedupe", step.root), records, listing).clusters
        chosen = [one for one in clusters if one.similarity is None or one.similarity < 1][:MAX_CLUSTERS]
        minhash = comparison_of(whole.info["comparison"]).minhash
        yield SimilarSet(step.root, as_recorded(step.params), name, minhash, whole, tuple(chosen))


def cluster_examples(sets: tuple[SimilarSet, ...]) -> list[ClusterExample]:
    """Read what is shown of each cluster; one that cannot be read any more says why."""
    return [_example(one, cluster) for one in sets for cluster in one.clusters]


def _example(similar: SimilarSet, cluster: "ClusterRow") -> ClusterExample:
    from dolma_dask.reading.clusters import ClusterReader

    title = f"{counted(cluster.size, 'document')} in {isolated(similar.name)}"
    try:
        dataset = open_dataset(similar.root, **similar.reading)
        places = tuple(place for place, _ in datasets_in(similar.record))
        reader = ClusterReader(dataset, similar.name, similar.minhash, places)
        found = reader.find(shard=cluster.shard, row=cluster.row)
        members = [member for name in found for member in reader.show(name, MAX_READ)[0]]
    except DolmaDaskError as error:
        return ClusterExample(title, note=str(error))
    if not members:
        return ClusterExample(title, note="the table of clusters is of other documents; run dedupe again.")
    return ClusterExample(title, [_member(one) for one in _differing(members)])


def _differing(members: list["ClusterMember"]) -> list["ClusterMember"]:
    """Return the survivor and the first copies that differ from it."""
    first, *others = members
    differ = [one for one in others if any(piece.kind in ("removed", "added") for piece in one.pieces)]
    return [first, *(differ or others)[:MAX_COPIES]]


def _member(member: "ClusterMember") -> MemberExample:
    pieces = [(piece.kind, piece.text) for piece in member.pieces]
    if pieces:
        pieces[0] = (pieces[0][0], without_blank_lines(pieces[0][1]))
    return MemberExample(member.head(), pieces)
