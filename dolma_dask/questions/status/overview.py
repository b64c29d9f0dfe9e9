"""Overview of a dataset in a notebook: a tree of its documents, its attribute sets, and what verbs have done.

Cost: that of `status`, one listing of the dataset and of what it was made from, and its journals; no document is read. Of more than `MAX_CHECKED`
shards only the tree is shown. Nothing is raised: what cannot be told is a note.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from html import escape

from dolma_dask.dataset import Dataset, Shard
from dolma_dask.display import byte_size, counted, listed
from dolma_dask.formats import layout
from dolma_dask.journal import Journal, journals
from dolma_dask.questions.status.inputs import Listing
from dolma_dask.questions.status.question import COLUMNS, status_of
from dolma_dask.questions.status.rows import StatusRow
from dolma_dask.results import notebook
from dolma_dask.results.table import Column, Table

MAX_CHECKED = 10_000
"""Shards of a dataset whose journals are read for its display; 30 us for each and verb."""

MAX_SHOWN = 8
"""Entries of a folder that are shown; how many more there are is told."""

_DEPTH = 3
"""Levels of folders that the tree opens; deeper ones are counted."""


def overview(dataset: Dataset) -> str:
    """Return what a notebook shows of a dataset, as HTML."""
    others = [f"source: {dataset.source}"] if dataset.source is not None else []
    others += ["ids that are whole numbers are read as text"] if dataset.ids_as_text else []
    if dataset.ignored:
        others.append(f"{counted(len(dataset.ignored), 'file')} below documents/ left out: not of documents")
    head = f"Dataset {dataset.root}: {_amount(dataset.shards)}"
    tree = _entries([(shard.path.split("/"), shard) for shard in dataset.shards])
    return notebook.fragment(notebook.heading(head), tree, *_known(dataset), notebook.notes(others))


def _amount(shards: Sequence[Shard]) -> str:
    return f"{counted(len(shards), 'shard')}, {byte_size(sum(shard.bytes for shard in shards))}"


_Place = tuple[list[str], Shard]
"""A shard, and the names that lead to it from the folder that is looked at."""


def _entries(places: Sequence[_Place], depth: int = 0) -> str:
    """Return the list of what is in a folder, the largest first; folders are open where there are few entries."""
    below: defaultdict[str, list[_Place]] = defaultdict(list)
    for names, shard in places:
        below[f"{names[0]}/" if names[1:] else names[0]].append((names[1:], shard))
    sizes = {name: sum(shard.bytes for _, shard in inner) for name, inner in below.items()}
    order = sorted(below, key=lambda name: (-sizes[name], name))
    is_open = depth == 0 and len(order) <= notebook.FEW
    shown = [_entry(name, below[name], depth, is_open) for name in order[:MAX_SHOWN]]
    rest = order[MAX_SHOWN:]
    if rest:
        shown.append(f"and {len(rest):,} more, {byte_size(sum(sizes[name] for name in rest))}")
    return notebook.items(shown)


def _entry(name: str, inner: Sequence[_Place], depth: int, is_open: bool) -> str:
    shards = [shard for _, shard in inner]
    if not inner[0][0]:
        return escape(f"{name}: {byte_size(shards[0].bytes)}")
    title = f"{name}: {_amount(shards)}"
    if depth + 1 == _DEPTH:
        return escape(title)
    return notebook.folded(title, _entries(inner, depth + 1), is_open=is_open)


def _known(dataset: Dataset) -> Iterator[str]:
    """Yield the attribute sets and what verbs have done, as far as that can be told."""
    if len(dataset.shards) > MAX_CHECKED:
        yield notebook.notes(
            [
                f"attribute sets: {listed(dataset.attributes) or 'none'}",
                "what verbs have done is not shown of so many shards; dk.status(dataset) tells it",
            ]
        )
        return
    try:
        yield from _state(dataset)
    except Exception as error:  # noqa: BLE001 - a display never raises, whatever lies in the dataset
        yield notebook.notes(
            [
                f"attribute sets: {listed(dataset.attributes) or 'none'}",
                f"what verbs have done cannot be told: {type(error).__name__}: {error}",
            ]
        )


def _state(dataset: Dataset) -> Iterator[str]:
    there, known = Listing(dataset.root, skip=dataset.skip), list(journals(dataset.root))
    found = status_of(there, known)
    rows = {row.writes: row for row in found.rows}
    sets = sorted({path.split("/")[1] for path in there.below(layout.ATTRIBUTES) if path.count("/") > 1})
    yield notebook.table(
        Table(
            "attribute sets",
            _SETS,
            [_set_row(name, dataset, there, known, rows.get(_folder(name))) for name in sets],
        )
    )
    others = [row for row in found.rows if row.writes not in set(map(_folder, sets))]
    yield notebook.table(Table.of("what verbs have done", COLUMNS, others))
    yield notebook.notes(found.notes)


_SETS = (
    Column("name", "name"),
    Column("made by", "words"),
    Column("files"),
    Column("size", "size"),
    Column("missing"),
    Column("stale"),
    Column("state", "words"),
)


def _folder(name: str) -> str:
    return f"{layout.ATTRIBUTES}/{name}/"


def _set_row(
    name: str, dataset: Dataset, there: Listing, known: Sequence[Journal], row: StatusRow | None
) -> tuple[str | int, ...]:
    """Return the row of an attribute set: who made it, of how many shards, and whether it holds."""
    paths = there.below(f"{layout.ATTRIBUTES}/{name}")
    stems = {layout.stem_of(path.removeprefix(_folder(name))) for path in paths}
    missing = sum(layout.stem_of(shard.path) not in stems for shard in dataset.shards)
    size = sum(there.files[path].bytes for path in paths)
    changed, state = (0, "not in the journal") if row is None else (row.changed, row.state)
    return name, _makers(name, known), len(paths), size, missing, changed, state


def _makers(name: str, known: Sequence[Journal]) -> str:
    """Return the verb that made an attribute set, with its taggers where they are not named as the set is."""
    taggers: Counter[str] = Counter()
    verbs = []
    for journal in known:
        records = [one for unit, one in journal.records.items() if unit.startswith(_folder(name))]
        verbs += [journal.verb] if records else []
        taggers.update(tagger for record in records for tagger in record.info.get("taggers", ()))
    shown = [tagger for tagger in taggers if tagger != name]
    return f"{listed(verbs)}: {listed(shown)}" if shown else listed(verbs) or "another tool"
