"""Whose a file is: the run that made it, the runs that later ones have made void, and whether a dataset is complete.

Folders of runs nest: `convert` writes below ``documents/``, with `--under a` below ``documents/a/``. So a prefix alone does not tell whose a file is; the
time of its record does. Cost: nothing beside reading the runs of a journal, while none of them is open or all have filled the same folders.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from dolma_dask.dataset import Dataset
from dolma_dask.errors import BadRecordBudgetError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.journal import Journal, Record, RunRecord
from dolma_dask.registry import names_of

Claim = tuple[str, ...]
"""Folders or file prefixes that a run has announced."""


class Ownership(Struct, frozen=True, dict=True):
    """Claims of the runs of a journal on files."""

    journal: Journal

    def claim_on(self, path: str) -> Claim:
        """Return the claim of the run that a file is of; empty if no run has announced it.

        Of the runs that went on when its record was made, the one with the narrowest folder; else the last that had begun by then.
        """
        claims = [claim for claim in self._claims if path.startswith(claim)]
        if len(claims) < 2:
            return claims[0] if claims else ()
        record = self._records.get(path)
        if record is None:
            return _narrowest(path, claims)
        begun = [run for run in self._runs if run.writes in claims and run.started <= record.finished]
        at_work = [run.writes for run in begun if not run.finished or record.finished <= run.finished]
        return _narrowest(path, at_work or [run.writes for run in begun[-1:]] or claims)

    def prefix_of(self, path: str) -> str:
        """Return the folder or file prefix under which the file was announced; empty if it was not."""
        return max((prefix for prefix in self.claim_on(path) if path.startswith(prefix)), key=len, default="")

    def of_others(self, paths: Iterable[str], claim: Claim) -> list[str]:
        """Return the files of runs that share none of the folders of a claim."""
        return [path for path in paths if (found := self.claim_on(path)) and not set(found) & set(claim)]

    @cached_property
    def _runs(self) -> list[RunRecord]:
        return self.journal.runs

    @cached_property
    def _claims(self) -> list[Claim]:
        return list(dict.fromkeys(run.writes for run in self._runs))

    @cached_property
    def _records(self) -> Mapping[str, Record]:
        return self.journal.by_file()


def _narrowest(path: str, claims: Sequence[Claim]) -> Claim:
    """Return the claim with the longest prefix of a path, the last of several."""
    return max(
        reversed(claims), key=lambda claim: max(len(prefix) for prefix in claim if path.startswith(prefix))
    )


def void_claims(journal: Journal, there: Collection[str]) -> set[Claim]:
    """Return the claims of runs of a verb that makes documents which later runs have made void.

    Nothing that such a run made is among the files `there`, and after it documents were first made of the same raw files elsewhere, or in a folder around
    or inside of its own: the same command could not go on beside them.
    """
    newest = journal.newest
    if len(newest) < 2 or journal.verb not in names_of("documents"):
        return set()
    owned = Ownership(journal)
    filled = {owned.claim_on(path) for path in there if layout.suffix_of(path)}
    first = {run.writes: run.started for run in reversed(journal.runs)}
    return {
        run.writes
        for run in newest.values()
        if run.writes not in filled
        and any(
            first[claim] > run.started and _stands_for(run, newest[claim]) for claim in filled & first.keys()
        )
    }


def _stands_for(run: RunRecord, later: RunRecord) -> bool:
    """Tell whether a later run read the same raw files as the other, or has filled a folder around or inside of its own."""
    nests = any(
        one.startswith(other) or other.startswith(one)
        for one in run.writes
        for other in later.writes
        if one.endswith("/") and other.endswith("/")
    )
    return nests or bool(run.origin and run.origin == later.origin)


def incomplete(root: str, verbs: Sequence[str] = names_of("documents")) -> list[str]:
    """Return a sentence for the newest run of each verb and folder below a dataset `root` that was stopped, still goes on, or left units
    undone; only of verbs that write documents.
    """
    newest = {(run.verb, run.writes): run for run in _runs(root, verbs)}
    return [
        f"{root} is not complete: {verb} left {run.missing:,} of its files out (failures, --only, --share or --prune)"
        if run.finished
        else f"{root} may not be complete: the last {verb} was stopped or still goes on"
        for (verb, _), run in newest.items()
        if run.missing or not run.finished
    ]


def dataset_notes(dataset: Dataset) -> tuple[str, ...]:
    """Return what a person should know of a dataset that is read: runs that did not end."""
    return tuple(incomplete(dataset.root))


def check_budget(root: str, verbs: Sequence[str] = names_of("documents")) -> None:
    """Refuse a dataset whose documents were made with more bad records than allowed.

    Raises `BadRecordBudgetError`: the last run that ended says so.
    """
    runs = [run for run in _runs(root, verbs) if run.finished]
    for run in {(run.verb, run.writes): run for run in runs}.values():
        if run.over_budget:
            raise BadRecordBudgetError(
                f"{root} is over budget: at the end of {run.verb} {run.over_budget}. Mend the input and run the same {run.verb} again, or accept "
                f"the loss with it: --on-bad-record quarantine and a larger --max-bad-fraction. The records are in {root}/_quarantine/{run.verb}/.",
                root=root,
            )


def _runs(root: str, verbs: Sequence[str]) -> Iterator[RunRecord]:
    """Yield the announced runs of some verbs that write documents of the dataset and are not void, in the order in which they started."""
    # one request of a store, in place of one for each verb
    ran = files.list_folders(files.join(root, layout.JOURNAL))
    for verb in (verb for verb in verbs if verb in ran):
        journal = Journal(root, verb, runs_only=True)
        void = _void_claims(journal)
        for run in journal.runs:
            if run.writes not in void and any(
                prefix.startswith(f"{layout.DOCUMENTS}/") for prefix in run.writes
            ):
                yield run


def _void_claims(journal: Journal) -> set[Claim]:
    """Return the same from a journal of runs alone; records and files are looked at only if some run is open beside others."""
    newest = journal.newest
    if len(newest) < 2 or not any(run.is_open for run in newest.values()):
        return set()
    folder = f"{layout.DOCUMENTS}/"
    there = [f"{folder}{info.path}" for info in files.list_files(files.join(journal.root, folder))]
    return void_claims(Journal(journal.root, journal.verb), there)
