"""What was searched before, and holds none of the documents: the journal of `remove` knows each file by its bytes, under a key of all tombstones.

So the same command reads nothing twice, moved or copied too; a file that has changed is searched again.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

import dolma_dask
from dolma_dask.engine import Task, Unit, resume
from dolma_dask.engine.mapping import mapping, stop_without_store
from dolma_dask.errors import Failure, InterruptedStageError
from dolma_dask.formats import layout
from dolma_dask.io.id_keys import IdList
from dolma_dask.io.id_lists import IdListFile
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.options.groups import RunOptions
from dolma_dask.reading.tombstones import Tombstones
from dolma_dask.verbs.remove.records import Changed
from dolma_dask.verbs.remove.shards import Outcome

VERSION = 3
"""Raised whenever a search finds other rows in the same files."""

_VERB = "remove"


class Search:
    """Runs stages over files, but for those that were searched for the same documents."""

    def __init__(self, root: str, options: RunOptions) -> None:
        self.root, self.options = root, options
        self.failures: list[Failure] = []
        self._records: list[Record] = []
        self._key = ""

    def of(self, tombstones: Tombstones, listed: IdList | None) -> None:
        """Say what is searched for: all tombstones, and in a rehearsal the list itself."""
        names = sorted(url.rpartition("/")[2] for url in tombstones.urls)
        more = {}
        if self.options.dry_run and listed is not None:
            is_new = not all(map(tombstones.has, IdListFile(listed.facts.url)))
            more = {"list": listed.facts.checksum} if is_new else {}
        self._key = work_key(_VERB, VERSION, {"tombstones": names, **more})

    def run(self, stage: Any, tasks: Sequence[Task], *, anew: bool = False) -> list[Outcome]:
        """Return the outcomes of the files that were not searched yet, all of them if `anew`; those that fail are kept by name."""
        units = [replace(task, units=(Unit(task.shard, self._key),)) for task in tasks]
        state = resume.look_back_at(self.root, _VERB, units)
        self._records += state.restamped
        left = units if anew else state.left
        outcomes: dict[str, Outcome] = {}

        def take(task: Task, outcome: Any) -> None:
            if isinstance(outcome, Failure):
                stop_without_store(outcome)
                self.failures.append(outcome)
            else:
                outcomes[task.shard] = outcome

        try:
            with mapping(stage, left, self.options) as go:
                go(take)
        except KeyboardInterrupt:
            raise InterruptedStageError(
                "remove was stopped. Run the same command again: it goes on."
            ) from None
        done = [(task, outcomes[task.shard]) for task in left if task.shard in outcomes]
        self._records += [task.record((), outcome.inputs) for task, outcome in done if not outcome.is_left]
        return [outcome for _, outcome in done]

    def remember(self, changed: Changed, params: dict[str, Any]) -> None:
        """Write what was searched into the journal, the files as they are now."""
        records = [replace(one, inputs=tuple(map(changed.input, one.inputs))) for one in self._records]
        if not records:
            return
        writer = Journal(self.root, _VERB).start(params, (f"{layout.TOMBSTONES}/",), dolma_dask.__version__)
        try:
            for record in records:
                writer.add(record)
            writer.finish(len(self.failures))
        finally:
            writer.close()
