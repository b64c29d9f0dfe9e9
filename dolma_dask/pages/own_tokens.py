"""Token shards beside a dataset: those that are not of its documents as they are now, or not of all of them, make no number of a page.

Their records name what they were made of, down to checksums. Two ways lead to the tokens of a version: its own files were read and nothing was left
out of them, or they come from the same selection as its documents, which read the same files and kept as much of them.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from dolma_dask.dataset import Dataset, Shard, shard_info
from dolma_dask.display import counted, isolated, last_name, shown_name
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.records import InputRecord
from dolma_dask.journal import is_same_file
from dolma_dask.pages.history import TOKEN_VERBS, History, Origin, Step, stem


def with_own_tokens(history: History, listed: Dataset, origin: Origin, shards: Sequence[Shard]) -> History:
    """Return a history without the numbers of tokens that are not of `listed`, and with a note for each; the page shows `shards` of its origin.

    The steps stay, with what they left undone. Tokens that were selected straight from `listed` are what its page is about.
    """
    is_all = len(shards) == len(origin.dataset.shards)
    shown = history.of_shards(origin.dataset.root, [shard.path for shard in shards], is_all)
    selected = shown.step(listed.root, "mix")
    if selected is None and origin.step is not None:
        selected = shown.step(origin.step.root, origin.step.verb)
    steps, notes = list(history.steps), list(history.notes)
    for number, step in enumerate(shown.steps):
        if step.verb in TOKEN_VERBS and step.records and step is not selected:
            own = [shard for shard in listed.shards if is_all or stem(shard.path) in (step.stems or ())]
            why = None if _is_same_selection(step, selected) else _not_own(step, listed, own, shown)
            if why:
                steps[number] = replace(step, records=())
                notes.append(why)
    return replace(history, steps=tuple(steps), notes=tuple(notes))


def _is_same_selection(step: Step, selected: Step | None) -> bool:
    """Tell whether tokens are those of a selection: both read the same files and kept as many documents with as much text."""
    if selected is None:
        return False
    both = [
        (
            {one.path: one.checksum for one in _documents_read(made)},
            _sum(made, "documents_out"),
            _sum(made, "text_bytes_out"),
        )
        for made in (step, selected)
    ]
    return both[0] == both[1]


def _not_own(step: Step, listed: Dataset, own: Sequence[Shard], history: History) -> str | None:
    """Say in which shards the documents that tokens were made of are not those of a dataset, or that some were left out; None if they are all of them."""
    read = {one.path: one for one in _documents_read(step)}
    made = {
        file.path: file.checksum
        for other in history.steps
        for record in other.records
        for file in record.files
        if other.root == listed.root
    }
    same = {path for path, shard in _paths(own) if path in read and _is_same(read[path], shard, listed, made)}
    every = {path for path, _ in _paths(own)} | set(read)
    name, tokens = shown_name(listed.root), f"{step.verb} of {shown_name(step.root)}"
    again = f"run {step.verb} on {name} again for tokens of all of it"
    if len(same) < len(every):
        origin = isolated(last_name(str(step.params.get("from", listed.root))))
        return (
            f"{tokens} read documents of {origin} that agree with {name} as it is now in {len(same):,} of {counted(len(every), 'shard')}: "
            f"its numbers are left out; {again}"
        )
    came, left = _sum(step, "documents_in") - _sum(step, "bad_records"), _sum(step, "documents_out")
    if came != left:
        return f"{tokens} kept {left:,} of the {counted(came, 'document')} of {name}: its numbers are left out; {again}"
    return None


def _paths(shards: Sequence[Shard]) -> Iterator[tuple[str, Shard]]:
    return ((layout.document_path(shard.path), shard) for shard in shards)


def _is_same(read: InputRecord, shard: Shard, listed: Dataset, made: dict[str, str]) -> bool:
    """Tell whether a file that was read is a shard as it is now, by the checksum of the journal that made it if one did."""
    info = shard_info(shard)
    known = made.get(read.path)
    return known == read.checksum if known else is_same_file(read, files.join(listed.root, read.path), info)


def _documents_read(step: Step) -> Iterator[InputRecord]:
    start = f"{layout.DOCUMENTS}/"
    return (one for record in step.records for one in record.inputs if one.path.startswith(start))


def _sum(step: Step, count: str) -> int:
    return sum(int(record.counts.get(count, 0)) for record in step.records)
