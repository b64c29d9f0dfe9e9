"""A call of `hdf5` from its arguments to its result: what is left of both passes, and what says that all of it is done.

The sums of the first pass stay in the journal with the checksums of all inputs; the keys of the files hold these checksums. So a finished
call reads nothing but the listing, a lost file needs the spools of its own shards only, and any change of an input makes all files anew.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import msgspec

import dolma_dask
from dolma_dask import engine
from dolma_dask.display import counted
from dolma_dask.engine import Plan, RunOptions, Task, Unit, resume
from dolma_dask.engine.lease import leased
from dolma_dask.errors import BadRecordBudgetError, StageError, UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.hdf5 import PARAMS_NAME, DataParams, RowCounts, TextCounts
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import merge_rules
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.stages.options import told
from dolma_dask.stages.packing.inputs import Documents
from dolma_dask.stages.packing.rows import RowPlan, RowsStage
from dolma_dask.stages.packing.spools import FOLDER, VERB, Spool, SpoolFolder, SpoolOutput, spool_name
from dolma_dask.stages.selection import rule_notes
from dolma_dask.stages.sinks import DocumentStage
from dolma_dask.summary import Summary
from dolma_dask.tokens.modes import Mode

VERSION = 1
"""Raised whenever hdf5 writes other bytes for the same documents and options."""

_WRITES = ("part-", PARAMS_NAME)
"""How the names of all outputs begin."""


@dataclass(frozen=True, repr=False)
class Hdf5Summary(Summary):
    """The outcome; `done` and `skipped` count files, or in a rehearsal what would be tokenized or written."""

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the table."""
        return [("files" if name == "shards" else name, value) for name, value in super().rows()]


@dataclass(frozen=True)
class Begun:
    """Where a call of `hdf5` stands before the first pass.

    Attributes
    ----------
    started : float
        By the monotonic clock.
    whole : Record or None
        The sums of the first pass, if it is done.
    first : Plan or None
        The first pass, if it is not.
    settled : Hdf5Summary or None
        The outcome, if nothing is left to do: whatever another run does to the folder from then on.
    """

    started: float
    whole: Record | None
    first: Plan | None
    settled: Hdf5Summary | None


@dataclass(frozen=True)
class Packing:
    """A call of `hdf5`, with everything that decides its result.

    Attributes
    ----------
    documents : Documents
        What is read.
    target : str
        Output root.
    mode : Mode
        What a row is.
    max_rows : int
        Rows of a file at most.
    policy : RecordPolicy
        What happens to bad records.
    sections : Mapping
        Parameters for people: ``setup``, ``processing`` and ``dataset`` of ``data_params.json``. No paths, so that the file is the same wherever
        it was made.
    """

    documents: Documents
    target: str
    mode: Mode
    max_rows: int
    policy: RecordPolicy
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def run(self, options: RunOptions) -> Hdf5Summary:
        """Do what is left."""
        with self.begun(options) as begun:
            ran = self._tokenize(begun.first, options) if begun.first else None
            return self.finish(begun, options, ran)

    @contextmanager
    def begun(self, options: RunOptions) -> "Iterator[Begun]":
        """Look at what is there; what is left is nobody else's to do until the block ends.

        Raises
        ------
        UsageError
            Files of others are in the way, rows would be lost, or another run writes to the same folder.
        """
        started = time.monotonic()
        self._check_free(options.overwrite)
        known = None if options.overwrite else self._finished(options.dry_run)
        if known is None and not options.overwrite:
            self._check_replaced()
        settled = None if known is None else self._settled(known)
        first = None if known else self._first_plan(range(len(self.documents.parts)))
        with nullcontext() if settled or options.dry_run else leased(self._lock, "hdf5"):
            if options.overwrite and not options.dry_run:
                files.remove_tree(self._folder)
            yield Begun(started, known, first, settled)

    def _settled(self, whole: Record) -> Hdf5Summary | None:
        """Return the outcome if all is there and nothing else is: no other run is at work, and none has left something."""
        plan = self._second_plan(whole)
        state = resume.look_back(plan, overwrite=False)
        is_open = resume.is_open(plan, state) or bool(resume.orphans(plan, state))
        rests = {FOLDER, layout.WORK} & {*files.list_folders(self.target)}
        if state.left or is_open or rests or not self._has_params(whole):
            return None
        counts: Counter[str] = Counter()
        for record in state.finished.values():
            counts.update(record.counts)
        known = Summary("hdf5", self.target, skipped=len(plan.tasks), counts=counts, notes=plan.notes)
        return self._outcome(whole, known)

    def _outcome(self, whole: Record, summary: Summary) -> Hdf5Summary:
        """Return what both passes have come to."""
        shown = _shown(summary, whole)
        return replace(shown, notes=(*shown.notes, *rule_notes(shown), *self._notes(whole)))

    def _left(self, whole: Record) -> set[str]:
        """Return the files that are left, once the first pass is done."""
        return {task.shard for task in resume.look_back(self._second_plan(whole), overwrite=False).left}

    def finish(self, begun: "Begun", options: RunOptions, ran: Summary | None) -> Hdf5Summary:
        """Make the files, once the first pass has run if there was one, which `ran` tells of."""
        if begun.settled is not None:
            return replace(begun.settled, seconds=time.monotonic() - begun.started)
        if options.dry_run and ran is not None:
            return _shown(ran)
        whole = begun.whole or self._sum_up(ran)
        if options.dry_run:
            return _shown(engine.run(self._second_plan(whole), options).summary, whole)
        self._prepare(whole, options, has_spools=begun.whole is None)
        summary = engine.run(self._second_plan(whole), options).summary
        self._publish_params(whole)
        files.remove_tree(self._folder)
        sweep(self.target)
        return replace(self._outcome(whole, summary), seconds=time.monotonic() - begun.started)

    def _prepare(self, whole: Record, options: RunOptions, has_spools: bool) -> None:
        """Make the spools that are missing for the files that are left."""
        left = self._left(whole)
        if left:
            files.remove(files.join(self.target, PARAMS_NAME))  # it says that all files are there
            if not has_spools:
                self._tokenize(self._first_plan(self._needed(whole, left)), options)

    @property
    def output(self) -> SpoolOutput:
        """What the first pass makes."""
        return SpoolOutput(self.target, self._folder, self.mode)

    @property
    def _folder(self) -> str:
        return files.join(self.target, FOLDER)

    @property
    def _lock(self) -> str:
        """Where this run says that it is at work."""
        return files.join(self.target, f"{layout.WORK}/hdf5-rows")

    @property
    def _unit(self) -> Unit:
        """The sums of the first pass: known under what was asked, true while all inputs are what they were."""
        params = {
            "documents": dict(self.documents.params),
            "mode": dict(self.mode.params()),
            "max_record_bytes": self.policy.max_record_bytes,
            "on_bad_record": self.policy.on_bad_record,
        }
        return Unit("tokens", work_key("hdf5", VERSION, params))

    def _check_free(self, overwrite: bool) -> None:
        """Refuse a folder with files of others that a loader would read, before hours of work."""
        journal = Journal(self.target, "hdf5")
        names = [info.path for info in files.list_files(self.target) if "/" not in info.path]
        read = [name for name in names if name.endswith(".h5") or name == PARAMS_NAME]
        is_begun = self._unit.name in journal.records
        foreign = [
            name for name in read if not ((is_begun and name == PARAMS_NAME) or journal.may_write(name))
        ]
        is_ours = all(name.startswith(_WRITES) for name in foreign)
        if foreign and not (overwrite and is_ours):
            how = "replace them with --overwrite" if is_ours else "move them away"
            raise UsageError(
                f"{self.target} holds {counted(len(foreign), 'file')} that no hdf5 has made, first {foreign[0]!r}; expected only its own, since "
                f"loaders read every .h5 file of a folder. Choose another target, or {how}."
            )

    def _check_replaced(self) -> None:
        """Refuse to make rows in the place of others that were made from more files, or from other ones."""
        journal = Journal(self.target, "hdf5")
        made = [name for name in journal.records if name.startswith(_WRITES)]
        plan = replace(self._first_plan([]), root=self.target, writes=_WRITES, origin=self.documents.origin)
        resume.check_origin(plan, journal, made)
        whole = journal.records.get(self._unit.name)
        now = {item.info.path for part in self.documents.parts for item in part.inputs}
        lost = sorted({item.path for item in whole.inputs} - now) if whole and made else []
        if lost:
            raise UsageError(
                f"{self.target} holds rows of {counted(len(lost), 'file')} that this run does not read, first {lost[0]}; expected all of them, since "
                "rows go on from file to file. Leave --only and --prune out, choose another target, or make all rows anew with --overwrite."
            )

    def _finished(self, is_rehearsal: bool) -> Record | None:
        """Return the sums of the first pass, if all inputs still are what they were made from."""
        inputs = tuple(item for part in self.documents.parts for item in part.inputs)
        task = Task(self._unit.name, (self._unit,), inputs)
        state = resume.look_back_at(self.target, "hdf5", [task])
        for record in () if is_rehearsal else state.restamped:
            self._add(record)
        return state.finished.get(self._unit.name)

    def _first_plan(self, numbers: Sequence[int]) -> Plan:
        stage = DocumentStage((self.output,), self.policy, VERB)
        key, parts = self._unit.key, self.documents.parts
        return Plan(
            stage=stage,
            root=self._folder,
            tasks=[stage.task(parts[number], Unit(spool_name(number), key)) for number in numbers],
            params={"key": key},
            writes=("",),
            version=dolma_dask.__version__,
            max_bad_fraction=1.0,  # looked at when all is read
            notes=self.documents.notes,
        )

    def _tokenize(self, plan: Plan, options: RunOptions) -> Summary:
        """Make the spools of some parts, as far as they are not there."""
        try:
            return engine.run(plan, replace(options, overwrite=options.overwrite and options.dry_run)).summary
        except StageError as error:
            raise StageError(str(error), failures=error.failures, summary=self._failed(error)) from error

    def _failed(self, error: StageError) -> Summary | None:
        summary = error.details.get("summary")
        return replace(summary, verb="hdf5", target=self.target) if isinstance(summary, Summary) else None

    def _sum_up(self, ran: Summary | None) -> Record:
        """Note the sums of the first pass, and return them."""
        assert ran is not None
        self._check_budget(ran)
        known = Journal(self._folder, VERB).records
        plan = self._first_plan(range(len(self.documents.parts)))
        records = [known[unit.name] for task in plan.tasks for unit in task.units]
        whole = self._sum(records, ran.counts)
        self._add(whole)
        return whole

    def _check_budget(self, summary: Summary) -> None:
        bad, rows = summary.counts.get("bad_records", 0), summary.counts.get("documents_in", 0)
        if bad > self.policy.max_bad_fraction * rows:
            raise BadRecordBudgetError(
                f"hdf5: {bad:,.0f} of {rows:,.0f} rows are bad ({bad / max(rows, 1):.3%}); allowed are {self.policy.max_bad_fraction:.3%} "
                f"(max_bad_fraction). Look at {self.target}/_quarantine/hdf5/, mend the input or allow more.",
                bad=bad,
                rows=rows,
                summary=replace(summary, verb="hdf5", target=self.target),
            )

    def _sum(self, records: Sequence[Record], counts: Mapping[str, float]) -> Record:
        texts = reduce(add, (TextCounts(**record.info["texts"]) for record in records), TextCounts())
        return Record(
            unit=self._unit.name,
            shard=self.documents.parts[0].name,
            key=self._unit.key,
            inputs=tuple(item for record in records for item in record.inputs),
            files=tuple(file for record in records for file in record.files if file.path != record.unit),
            rows=texts.documents,
            counts=dict(counts),
            rules=merge_rules(record.rules for record in records),
            seconds=sum(record.seconds for record in records),
            finished=max(record.finished for record in records),
            info={
                "texts": vars(texts),
                "spools": [
                    [record.info["tokens"], record.info["sequences"], record.info["rows"]]
                    for record in records
                ],
            },
        )

    def _add(self, record: Record) -> None:
        Journal(self.target, "hdf5").append(record)

    def _row_plan(self, whole: Record) -> RowPlan:
        sums = whole.info["spools"]
        spools = (Spool(number, tokens, sequences) for number, (tokens, sequences, _) in enumerate(sums))
        return RowPlan(self.mode, tuple(spools), tuple(rows for _, _, rows in sums))

    def _second_plan(self, whole: Record) -> Plan:
        rows = self._row_plan(whole)
        stage = RowsStage(
            self.target, SpoolFolder(self._folder, self.mode.engine.dtype), self.mode, rows.tokens
        )
        content = {item.path: item.checksum for item in whole.inputs}
        listed = [content[item.info.path] for part in self.documents.parts for item in part.inputs]
        key = work_key("hdf5", VERSION, {"set": self._unit.key, "inputs": listed, "max_rows": self.max_rows})
        tasks = [stage.task(number, work, key) for number, work in enumerate(rows.files(self.max_rows))]
        return Plan(
            stage=stage,
            root=self.target,
            tasks=tasks,
            params=told(
                {
                    "from": self.documents.origin,
                    **self.sections.get("setup", {}),
                    **self.sections.get("processing", {}),
                }
            ),
            writes=_WRITES,
            version=dolma_dask.__version__,
            origin=self.documents.origin,
            reads=(".h5",),
            all_units=frozenset(task.shard for task in tasks),
            beside=frozenset({PARAMS_NAME}),
            notes=self.documents.notes,
        )

    def _needed(self, whole: Record, planned: set[str]) -> list[int]:
        """Return the parts whose spools the files read that are left."""
        left = [task.work for task in self._second_plan(whole).tasks if task.shard in planned]
        return sorted({spool.number for work in left for spool, _, _ in work.pieces})

    def _rows(self, whole: Record) -> RowCounts:
        """Return what was counted in all rows."""
        known = Journal(self.target, "hdf5").records
        tasks = self._second_plan(whole).tasks
        return reduce(add, (RowCounts(**known[task.shard].info["rows"]) for task in tasks), RowCounts())

    def _params(self, whole: Record) -> bytes:
        """Return the content of ``data_params.json``: from the records of what was written."""
        specials = self.mode.specials
        params = DataParams(
            self.mode.features,
            specials.eos_id,
            specials.pad_id,
            self.mode.engine.vocab_size,
            TextCounts(**whole.info["texts"]),
            self._rows(whole),
            self.sections,
        )
        return msgspec.json.format(msgspec.json.encode(params.to_json()), indent=2) + b"\n"

    def _has_params(self, whole: Record) -> bool:
        url = files.join(self.target, PARAMS_NAME)
        return files.stat(url) is not None and files.read_bytes(url) == self._params(whole)

    def _publish_params(self, whole: Record) -> None:
        if not self._has_params(whole):
            with publish(files.join(self.target, PARAMS_NAME)) as out:
                out.write(self._params(whole))

    def _notes(self, whole: Record) -> list[str]:
        """Say what a person would not expect to be missing."""
        texts, rows = TextCounts(**whole.info["texts"]), self._rows(whole)
        notes = []
        if self.mode.stream_tail == "drop":
            lost = self._row_plan(whole).tokens - rows.rows * self.mode.length
            notes.append(f"{counted(max(lost - 1, 0), 'token')} of the tail are in no row (tail=drop)")
        if texts.empty:
            notes.append(
                f"{counted(texts.empty, 'document')} made no row: fewer tokens than min_sequence_len"
            )
        if not rows.rows:
            notes.append("no row was written: there are too few tokens for one")
        return notes


def _shown(summary: Summary, whole: Record | None = None) -> Hdf5Summary:
    """Return a summary with the counts of both passes."""
    counts = {**(whole.counts if whole else {}), **summary.counts}
    rules = whole.rules if whole else summary.rules
    return Hdf5Summary(**{**vars(summary), "verb": "hdf5", "counts": counts, "rules": rules})
