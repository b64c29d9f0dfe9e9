"""A takedown from its list to its receipt: tombstones, documents and what lines up with them, what names them, token files, journals. Memory: the changes of all files."""

import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

import dolma_dask
from dolma_dask.engine import Task, inputs_of
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.id_keys import IdList
from dolma_dask.io.id_lists import IdBlock, IdListFile
from dolma_dask.io.publish import publish, sweep
from dolma_dask.options.groups import RunOptions
from dolma_dask.reading.tombstones import (
    Entry,
    Tombstones,
    entries_of,
    read_entries,
    settle,
    tombstones_at,
    write_entries,
)
from dolma_dask.verbs.remove import staged
from dolma_dask.verbs.remove.changes import Change, Work
from dolma_dask.verbs.remove.edits import Cuts, EditStage, EditWork
from dolma_dask.verbs.remove.hdf5 import renew_params
from dolma_dask.verbs.remove.identities import Wanted
from dolma_dask.verbs.remove.listing import TOKEN_VERBS, Listing
from dolma_dask.verbs.remove.others import SearchStage
from dolma_dask.verbs.remove.records import Changed, bare_token_files, renew
from dolma_dask.verbs.remove.searching import Search
from dolma_dask.verbs.remove.shards import Outcome, ShardStage, ShardWork
from dolma_dask.verbs.remove.stale import stale_after
from dolma_dask.verbs.remove.summary import Left, Removal, told
from dolma_dask.verbs.remove.token_files import TokenWork
from dolma_dask.verbs.remove.tokens import TokenStage, renew_indexes


class Takedown:
    """A takedown while it runs: of a list, or of tombstones alone, whose own takedown was stopped."""

    def __init__(
        self, listing: Listing, listed: IdList | None, options: RunOptions, reason: str, *, hashed: bool
    ) -> None:
        self.listing, self.listed, self.options = listing, listed, options
        self._reason, self.hashed = reason, hashed
        self.root = listing.root
        self.outcomes: list[Outcome] = []
        self.left: list[Left] = []
        self.identities: set[tuple[str, str]] = set()
        self.settled: set[str] = set()  # keys of entries that were taken down before
        self.before: tuple[Change, ...] = ()  # of a run that was stopped
        self.search = Search(self.root, options)

    def rehearse(self) -> Removal:
        """Say what would be done.

        Raises `UsageError`: a takedown of another list was stopped, whose files would not be searched.
        """
        if Work(self.root).all_done() and not has_all(tombstones_at(self.root), self.listed):
            raise UsageError(
                f"a takedown of another list was stopped in {self.root}; what is to be done is known once that has ended. Run the same command without "
                "--dry-run, which ends it first.",
                root=self.root,
            )
        self.work_through()
        changes = self.changes(())
        return self.summary(changes, 0, planned=tuple(change.path for change in changes))

    def run(self) -> Removal:
        """Take the documents down."""
        work = Work(self.root)
        self.settled = {entry.key for url in tombstones_at(self.root).settled for entry in read_entries(url)}
        self.before = tuple(work.all_done())
        new = self.write_tombstones()
        self.work_through()
        for renew_beside in (renew_indexes, renew_params):
            list(renew_beside(self.root, work.all_done()))
        changes = self.changes(work.all_done())
        changed = Changed.of(self.listing, changes, {one.shard for one in self.search.failures})
        journals = list(renew(self.listing, changed, self.wanted))
        done = self.summary(changes, new)
        if changes or new or journals:
            done = self.write_receipt(done)
        self.search.remember(changed, {"reason": self.reason, "list": self.list_checksum})
        if not self.search.failures:
            settle(self.root)
            self._clear(work)
        return done

    @property
    def entries(self) -> Iterable[IdBlock]:
        """Entries of the list."""
        return IdListFile(self.listed.facts.url) if self.listed else ()

    @property
    def list_checksum(self) -> str:
        """Checksum of the list; empty for one that is not there any more."""
        return self.listed.facts.checksum if self.listed else ""

    @property
    def reason(self) -> str:
        """Why, in the words of the list's takedown."""
        if self.listed:
            return self._reason
        own = tombstones_at(self.root)
        pending = (entry for url in own.urls if url not in own.settled for entry in read_entries(url))
        return "; ".join(dict.fromkeys(entry.reason for entry in pending if entry.reason))

    def _clear(self, work: Work) -> None:
        staged.clear(self.root)
        work.clear()
        sweep(self.root)

    def write_tombstones(self) -> int:
        """Write the tombstones that are not there yet; return how many."""
        known = {entry.key for url in tombstones_at(self.root).urls for entry in read_entries(url)}
        day = time.strftime("%Y-%m-%d", time.gmtime())
        new: dict[str, Entry] = {}
        for block in self.entries:
            for entry in entries_of(block, self.reason, day, hashed=self.hashed):
                if entry.key not in known:
                    new.setdefault(entry.key, entry)
        if new:
            write_entries(self.root, list(new.values()))
        return len(new)

    def work_through(self) -> None:
        """Do documents and what lines up with them, then files that name documents, then token files, and search the rest."""
        root, is_rehearsal = self.root, self.options.dry_run
        tombstones = tombstones_at(root)
        self.wanted = Wanted(tombstones, self.listed)
        self.search.of(tombstones, self.listed)
        self._learn(self.before)
        self._do(ShardStage(root, self.wanted, is_rehearsal), self._shards())
        # what names rows of files that were cut is renumbered, wherever it was searched before
        anew = bool(self.cuts)
        self._do(EditStage(root, self.wanted, is_rehearsal), self._edits(), anew)
        self._do(TokenStage(root, self.wanted, is_rehearsal), self._tokens(), anew)
        self.left += bare_token_files(self.listing, self.cuts, self.before)
        self._search_others()
        self.left += [
            Left(one.shard, f"{one.error}: {one.message}", "mend it, and run the same command again")
            for one in self.search.failures
        ]

    def _do(self, stage: Any, tasks: Sequence[Task], anew: bool = False) -> None:
        outcomes: list[Outcome] = self.search.run(stage, tasks, anew=anew)
        if not self.options.dry_run:
            Work(self.root).wait_for([change for outcome in outcomes for change in outcome.changes])
        self.outcomes += outcomes
        self.identities |= {one for outcome in outcomes for one in outcome.identities}
        self._learn(())

    def _learn(self, changes: Sequence[Change]) -> None:
        """Know the documents of some changes too, by id."""
        self.identities |= {one for change in changes for one in change.identities}
        self.wanted = self.wanted.with_ids(identity for _, identity in self.identities)

    def _shards(self) -> list[Task]:
        listing = self.listing
        readings = {root: listing.readings(root) for root in listing.datasets}
        tasks = []
        for place in listing.documents:
            attributes = tuple(path for _, path in listing.attributes_of(place))
            known = {path: listing.members_of(path) for path in (place.whole, *attributes)}
            work = ShardWork(place.whole, readings[place.root], attributes, known)
            tasks.append(self._task(place.whole, work))
        return tasks

    def _edits(self) -> list[Task]:
        return [
            self._task(
                place.whole,
                EditWork(place, self._origin_of(place.root, ("dropped",)), self._cuts_of(place.whole)),
            )
            for place in self.listing.with_ids
        ]

    def _tokens(self) -> list[Task]:
        tasks = []
        for place in self.listing.tokens:
            if place.segments is not None:
                origin, cuts = self._origin_of(place.folder, TOKEN_VERBS), self._cuts_of(place.path)
                work = TokenWork(place, origin, cuts, self.listing.made_with(place.path))
                tasks.append(self._task(place.path, work))
        return tasks

    def _origin_of(self, root: str, verbs: Sequence[str]) -> str:
        """Return the root of the dataset whose shards are named by files of some verbs below a root: that which they were made from."""
        for journal in self.listing.journals:
            if self.listing.place_of(journal) == root and journal.verb in verbs:
                origin = next((run.origin for run in reversed(journal.runs) if run.origin), "")
                if origin:
                    return files.seen_from(journal.root, origin).removeprefix(self.root).strip("/")
        return root

    @property
    def cuts(self) -> dict[str, Change]:
        """Files of documents of which rows are gone."""
        every = (change for outcome in self.outcomes for change in outcome.changes)
        return {change.path: change for change in every if change.what == "documents"}

    def _cuts_of(self, path: str) -> Cuts:
        """Return the rows that are gone from the files that another one was made of, as they were then: it numbers rows so."""
        made_of = self.listing.made_of(path)
        return {
            name: change.rows
            for name, change in self.cuts.items()
            if (change.before.checksum, change.before.bytes) in made_of
        }

    def _search_others(self) -> None:
        own = self.listed.facts.url if self.listed else ""
        paths = [path for path in self.listing.others if self.listing.url(path) != own]
        tasks = [self._task(path, None) for path in paths]
        outcomes: list[Outcome] = self.search.run(SearchStage(self.root, self.wanted), tasks)
        self.left += [
            Left(outcome.path, outcome.unread, "mend or remove it, and run the same command again")
            if outcome.unread
            else Left(
                outcome.path,
                "has an id of the list in it",
                "look at it, and remove or make it again: this command does not know its form",
            )
            for outcome in outcomes
            if outcome.is_left
        ]

    def _task(self, path: str, work: Any) -> Task:
        return Task(path, (), inputs_of(self.root, [self.listing.infos[path]]), work)

    def changes(self, done: Sequence[Change]) -> tuple[Change, ...]:
        """Return all changes by path, those of a run that was stopped among them."""
        every = {change.path: change for outcome in self.outcomes for change in outcome.changes}
        every |= {change.path: change for change in done}
        return tuple(every[path] for path in sorted(every))

    def unmatched(self) -> tuple[str, ...]:
        """Return the entries of the list that no document has had, now or when they were first taken down, as it has them."""
        if self.hashed:
            return ()
        ids = {identity for _, identity in self.identities}
        found = []
        for block in self.entries:
            for entry in entries_of(block, "", "", hashed=False):
                has = entry.id in ids if entry.source is None else (entry.source, entry.id) in self.identities
                if not has and entry.key not in self.settled:
                    found.append(str(entry.id) if entry.source is None else f"{entry.source}\t{entry.id}")
        return tuple(dict.fromkeys(found))

    def summary(self, changes: tuple[Change, ...], new: int, planned: tuple[str, ...] = ()) -> Removal:
        """Return the outcome."""
        return Removal(
            verb="remove",
            target=self.root,
            done=0 if planned else len(changes),
            notes=told(self.left),
            planned=planned,
            entries=self.listed.facts.entries if self.listed else 0,
            tombstones=new,
            changes=changes,
            searched=self.listing.unchanged(changes),
            left=tuple(self.left),
            stale=tuple(stale_after(self.listing, changes)),
            unmatched=self.unmatched(),
        )

    def write_receipt(self, done: Removal) -> Removal:
        """Write the receipt: one more than there are, or that of a run that was stopped here."""
        folder = f"{layout.TOMBSTONES}/receipts"
        content = self._receipt(done)
        names = files.list_level(files.join(self.root, folder))[1]
        same = (
            name for name in names if files.read_bytes(files.join(self.root, f"{folder}/{name}")) == content
        )
        numbers = (int(name.removesuffix(".json")) for name in names if re.fullmatch(r"\d+\.json", name))
        path = f"{folder}/{next(same, f'{max(numbers, default=0) + 1:06d}.json')}"
        with publish(files.join(self.root, path)) as out:
            out.write(content)
        return replace(done, receipt=path)

    def _receipt(self, done: Removal) -> bytes:
        known = done.to_json()
        shown = {
            "day": time.strftime("%Y-%m-%d", time.gmtime()),
            "reason": self.reason,
            "version": dolma_dask.__version__,
            "list": {"checksum": self.list_checksum, "entries": done.entries},
            **{name: known[name] for name in ("changes", "searched", "left", "stale", "unmatched")},
        }
        return msgspec.json.format(msgspec.json.encode(shown), indent=1) + b"\n"


def has_all(tombstones: Tombstones, listed: IdList | None) -> bool:
    """Tell whether all entries of a list are tombstones."""
    return listed is None or all(map(tombstones.has, IdListFile(listed.facts.url)))
