"""What the documents of a dataset were selected from: an earlier version by mix, or the dataset itself by ragged with a rule."""

from dataclasses import dataclass, replace

from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.display import counted
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.verbs.report.history import History, Step, stems_in, stems_out
from dolma_dask.verbs.report.names import last_name, stem

SELECTING = ("where", "include", "exclude", "sample_rate", "min_text_length")
"""Parameters of a run that leave documents out."""


@dataclass(frozen=True)
class Origin:
    """What the documents were selected from.

    Attributes
    ----------
    dataset : Dataset
        The shards that were selected from; the dataset itself if no earlier version is known.
    step : Step or None
        What selected.
    notes : tuple of str
        What a person should know.
    gone : int
        Shards that were selected from and are not there any more.
    """

    dataset: Dataset
    step: Step | None = None
    notes: tuple[str, ...] = ()
    gone: int = 0

    @property
    def where(self) -> str | None:
        """The rule as the user wrote it."""
        where = self.step.params.get("where") if self.step else None
        return where if isinstance(where, str) else None

    @property
    def attributes(self) -> tuple[str, ...]:
        """Attribute sets that were read for the rule, as the records tell."""
        records = self.step.current if self.step else ()
        paths = [item.path.split("/") for record in records for item in record.inputs]
        return tuple(sorted({parts[1] for parts in paths if parts[0] == layout.ATTRIBUTES}))


def find_origin(found: Dataset, history: History, source: str | None) -> Origin:
    """Find what the documents of a dataset were selected from.

    Parameters
    ----------
    found : Dataset
        As it was listed.
    history : History
        Its journals.
    source : str, optional
        Source of documents that lack the field.

    Raises
    ------
    UsageError
        Token shards in `history` belong to other documents.
    """
    stems = {stem(shard.path) for shard in found.shards}
    step = history.step(found.root, "mix")
    _check_tokens(found.root, stems | (_made_of(step, stems) if step else set()), history)
    if step is None:
        return _of_tokens(found, _selecting_step(found, history))
    if history.parent is None:
        return Origin(found)
    parent = open_dataset(history.parent, source=source or step.params.get("source"))
    names = last_name(parent.root), last_name(found.root)
    if _is_cut(step) and not step.packed:
        why = "its files are not all there as one mix has written them: which documents they are of {} cannot be told"
        return Origin(found, notes=(f"{names[1]}: {why.format(names[0])}",))
    made_of = _made_of(step, stems)
    shards = tuple(shard for shard in parent.shards if stem(shard.path) in made_of)
    if not shards:
        return Origin(found, notes=("{} has none of the shards of {} any more".format(*names),))
    gone = len(made_of - {stem(shard.path) for shard in shards})
    notes = (*_missing_notes(len(parent.shards) - len(shards), *names), *_gone_notes(gone, *names))
    return Origin(replace(parent, shards=shards), step, notes, gone)


def _of_tokens(found: Dataset, step: Step | None) -> Origin:
    """Return what token shards were made of straight from a dataset: those of its shards that they are there of."""
    made = {stem(record.shard) for record in step.records} if step is not None else set()
    shards = tuple(shard for shard in found.shards if stem(shard.path) in made)
    if step is None or not shards:
        return Origin(found)
    missing = len(found.shards) - len(shards)
    return Origin(
        replace(found, shards=shards),
        step,
        _missing_notes(missing, last_name(found.root), last_name(step.root)),
    )


def _is_cut(step: Step) -> bool:
    """Tell whether the newest mix cut its files by size."""
    return step.params.get("max_size") is not None or bool(step.params.get("shuffle"))


def _made_of(step: Step, stems: set[str]) -> set[str]:
    """Return the stems of what the shards of a new version were made of: their own, but for files that were cut by size."""
    whole = [record for record in step.packed if stems_out(record) <= stems]
    return {name for record in whole for name in stems_in(record)} if step.packed else stems


def _gone_notes(gone: int, parent: str, child: str) -> tuple[str, ...]:
    if not gone:
        return ()
    return (
        f"{counted(gone, 'shard')} of {parent} that {child} was made of {'is' if gone == 1 else 'are'} not there any more",
    )


def _missing_notes(missing: int, parent: str, child: str) -> tuple[str, ...]:
    if not missing:
        return ()
    return (
        f"{counted(missing, 'shard')} of {parent} {'is' if missing == 1 else 'are'} not in {child} and not counted",
    )


def _selecting_step(found: Dataset, history: History) -> Step | None:
    """Return the step that made tokens straight from a selection of `found`, if one did."""
    ragged = (
        step for step in history.steps if step.verb == "ragged" and any(map(step.params.get, SELECTING))
    )
    name = last_name(found.root)
    return next((step for step in ragged if last_name(str(step.params.get("from"))) == name), None)


def _check_tokens(root: str, stems: set[str], history: History) -> None:
    for step in history.steps:
        made_from = [record.shard for record in step.records]
        if step.verb == "ragged" and made_from and not any(stem(shard) in stems for shard in made_from):
            raise UsageError(
                f"{step.root} was made from other documents: its first shard {made_from[0]!r} is not in {root}; expected token shards "
                "of this dataset. Leave it out of --tokens."
            )
