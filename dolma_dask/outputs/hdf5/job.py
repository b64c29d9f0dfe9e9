"""A call of `hdf5` from its arguments to its result: what is left of both passes, and what says that all of it is done.

The sums of the first pass stay in the journal with the checksums of all inputs; the keys of the files hold these checksums. So a finished
call reads nothing but the listing, a lost file needs the staging files of its own shards only, and any change of an input makes all files anew.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property, reduce
from operator import add
from typing import Any, ClassVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from dolma_dask.display import counted
from dolma_dask.engine import (
    Announce,
    Gather,
    Input,
    Pass,
    Passes,
    Plan,
    Ran,
    Stage,
    Task,
    Unit,
    WorkDir,
    refusals,
    resume,
    work_dir,
)
from dolma_dask.engine.documents import DocumentList, DocumentStage
from dolma_dask.errors import CorruptFileError, UsageError
from dolma_dask.exchange.staged import Staged
from dolma_dask.formats import layout
from dolma_dask.formats.findings import TOO_LONG, TOO_SHORT
from dolma_dask.formats.hdf5 import MADE_OF, PARAMS_NAME, RowCounts, TextCounts, data_params
from dolma_dask.formats.segments import FOLDER, segments_path, with_segments
from dolma_dask.io import files
from dolma_dask.io.publish import publish, sweep
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import merge_rules
from dolma_dask.journal import Journal, Record, work_key
from dolma_dask.options.base import without_empty
from dolma_dask.options.records import finding_notes, first_findings, skipped_notes
from dolma_dask.outputs.hdf5.rows import PackStage, RowPlan, RowsStage
from dolma_dask.outputs.hdf5.shuffling import ShuffledStage, segment_pieces, spread
from dolma_dask.outputs.hdf5.staging import VERB, StagedTokens, StagingOutput, staging_name
from dolma_dask.reading.selection import rule_notes
from dolma_dask.results.parts import Fact
from dolma_dask.results.summary import Summary
from dolma_dask.tokens.modes import Mode

VERSION = 2
"""Raised whenever hdf5 writes other bytes for the same documents and options."""

_WRITES = (*with_segments(["part-"]), PARAMS_NAME)
"""Beginnings of the names of all outputs."""


class Hdf5Summary(Summary, frozen=True):
    """The outcome; `done` and `skipped` count files, or in a rehearsal what would be tokenized or written."""

    def facts(self) -> list[Fact]:
        return [fact._replace(label="files") if fact.label == "shards" else fact for fact in super().facts()]


def _as_it_is(step: Pass | Plan, work: WorkDir) -> Pass | Plan:
    return step


MAX_FILES = 10**6
"""Files of a run; a record of more is damaged."""


class Hdf5Job(Struct, frozen=True, dict=True):
    """A call of `hdf5`, with everything that decides its result; see `dolma_dask.engine.Job`."""

    documents: DocumentList
    root: str  # of the output
    mode: Mode  # what a row is
    max_rows: int  # of a file
    policy: RecordPolicy
    shuffle_seed: int | None = None  # of the order of rows; None: that of the documents
    sections: Mapping[str, Mapping[str, Any]] = {}
    """Parameters for people: ``setup``, ``processing`` and ``dataset`` of ``data_params.json``; no paths, so that it is the same anywhere."""
    told: Mapping[str, Mapping[str, Any]] = {}
    """What the call was given, which leads these sections, and decides nothing."""
    via: Callable[[Pass | Plan, WorkDir], Pass | Plan] = _as_it_is
    """Turns a pass or the plan of the files into one that takes what others have computed."""

    verb: ClassVar[str] = "hdf5"
    name: ClassVar[str] = "rows"
    record: ClassVar[str] = "tokens"
    writes: ClassVar[Sequence[str]] = ()

    @cached_property
    def key(self) -> str:
        """Digest of what was requested of the tokens; files have keys of their own."""
        params = {
            "documents": dict(self.documents.params),
            "mode": dict(self.mode.params()),
            **self.policy.params(),
        }
        return work_key("hdf5", VERSION, params)

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """All files that are read."""
        return tuple(item for part in self.documents.parts for item in part.inputs)

    def outputs(self, known: Record | None, overwrite: bool) -> Plan | None:
        """Return the plan of the files, or of the tokens while their sums are not known."""
        self._check_free(overwrite)
        known = self._whole(known)
        if known is None:
            if not overwrite:
                self._check_replaced()
            work = work_dir(self)
            return self.tokenize(work, range(len(self.documents.parts))).plan(work)
        plan = self.rows_plan(known)
        state = resume.look_back(plan, overwrite=False)
        has_params = state.left or self._has_params(self._params(known, state.finished.values()))
        return plan if has_params else None

    def passes(self, work: WorkDir, known: Record | None) -> Passes:
        """Tokenize all documents, count the rows of windows, announce the sums, write the files, and say in ``data_params.json`` that all are there."""
        known = self._whole(known)
        has_tokens = known is None
        if known is None:
            ran: Ran = yield self.via(self.tokenize(work, range(len(self.documents.parts))), work)
            known = self.summed(list(ran.records.values()), ran.summary.counts)
            if self.mode.packing is not None:
                pack = PackStage(work.url, self.mode)
                rows = yield Gather(pack, pack.tasks(self._row_plan(known, ran.records)))
                known = with_windows(known, rows)
            yield Announce(known)
        plan = self.rows_plan(known)
        left = {task.shard for task in resume.look_back(plan, overwrite=False).left}
        if left or has_tokens:
            files.remove(files.join(self.root, PARAMS_NAME))
        if left and not has_tokens:
            needed = self._needed(plan, left)
            ran = yield self.via(self.tokenize(work, needed, max_bad_fraction=1.0), work)
            self._check_sums(known, needed, ran)
        if left or has_tokens:  # with `overwrite` files that are there are made too
            plan = self.rows_plan(known, work.url, ran.records)
            if self.shuffle_seed is not None:
                rows = self._row_plan(known, ran.records)
                stage = RowsStage(self.root, work.url, self.mode, rows.tokens)
                staged = yield from spread(work, stage, rows, self.shuffle_seed)
                plan = self.rows_plan(known, work.url, staged=staged)
        ran = yield self.via(plan, work)
        params = self._params(known, ran.records.values())
        if not self._has_params(params):
            sweep(self.root, PARAMS_NAME)  # of a run that was killed here
            with publish(files.join(self.root, PARAMS_NAME)) as out:
                out.write(params)
        return ran

    def summarize(self, ran: Ran, known: Record | None) -> Hdf5Summary:
        """Return the summary, with the counts of both passes."""
        counts = {**(known.counts if known else {}), **ran.summary.counts}
        rules = known.rules if known else ran.summary.rules
        fields = {"verb": "hdf5", "target": self.root, "counts": counts, "rules": rules}
        summary = Hdf5Summary(**{**asdict(ran.summary), **fields})
        if (known := self._whole(known)) is None or summary.planned:
            return summary
        notes = (*summary.notes, *rule_notes(summary), *self._notes(known, ran.records.values()))
        return replace(summary, notes=notes)

    def _check_free(self, overwrite: bool) -> None:
        """Refuse a folder with files of others that a loader would read, before hours of work."""
        journal = Journal(self.root, "hdf5")
        names = [info.path for info in files.list_files(self.root)]
        read = [name for name in names if _is_read(name)]
        has_sums = self.record in journal.records
        foreign = [
            name for name in read if not ((has_sums and name == PARAMS_NAME) or journal.may_write(name))
        ]
        is_ours = all(name.startswith(_WRITES) for name in foreign)
        if foreign and not (overwrite and is_ours):
            how = "replace them with --overwrite" if is_ours else "move them away"
            raise UsageError(
                f"{self.root} holds {counted(len(foreign), 'file')} that no hdf5 has made, first {foreign[0]!r}; expected only its own, since "
                f"loaders read every .h5 file of a folder. Choose another target, or {how}."
            )

    def _check_replaced(self) -> None:
        """Refuse to replace rows that were made from more files, or from other ones."""
        journal = Journal(self.root, "hdf5")
        made = [name for name in journal.records if name.startswith(_WRITES)]
        plan = Plan(self._stage, self.root, (), self._shown, _WRITES, origin=self.documents.origin)
        refusals.check_origin(plan, journal, made)
        record = journal.records.get(self.record)
        refusals.check_options(plan, journal, made if record and record.key != self.key else [])
        before, documents = record if made else None, self.documents
        refusals.check_inputs(self.root, before, documents.origin, self.inputs, documents.is_narrowed)

    def _whole(self, known: Record | None) -> Record | None:
        """Return the dataset-wide record if it has the sums of all documents; what says less is not believed."""
        if known is None:
            return None
        parts, texts = known.info.get("parts", ()), known.info.get("texts", {})
        is_whole = len(parts) == len(self.documents.parts) and all(len(sums) == 3 for sums in parts)
        is_packed = self.mode.packing is None or WINDOWS in known.info
        if not (is_whole and is_packed) or texts.keys() != asdict(TextCounts()).keys():
            return None
        if self._row_plan(known).rows > self.max_rows * MAX_FILES:
            return None
        # of documents that are gone no file can be made again by itself
        return (
            None if MADE_OF in known.info and resume.look_back(self.rows_plan(known), False).left else known
        )

    def _check_sums(self, known: Record, numbers: Sequence[int], ran: Ran) -> None:
        """Refuse sums of the journal that are not those of the documents: rows would be cut elsewhere."""
        for number in numbers:
            found, recorded = _sums(ran.records[staging_name(number)]), list(known.info["parts"][number])
            if found != recorded:
                raise CorruptFileError(
                    f"{self.root}/{layout.JOURNAL}/{VERB} says {recorded} of {self.documents.parts[number].name} (tokens, sequences and rows); expected "
                    f"{found}, as its documents have. The journal is damaged: make everything anew with --overwrite.",
                    root=self.root,
                )

    @property
    def _stage(self) -> DocumentStage:
        return DocumentStage((StagingOutput(self.root, work_dir(self).url, self.mode),), self.policy, VERB)

    def tokenize(self, work: WorkDir, numbers: Sequence[int], max_bad_fraction: float | None = None) -> Pass:
        """Return the pass that tokenizes some parts."""
        stage, parts = self._stage, self.documents.parts
        tasks = [stage.task(parts[number], Unit(staging_name(number), self.key)) for number in numbers]
        allowed = self.policy.max_bad_fraction if max_bad_fraction is None else max_bad_fraction
        return Pass(stage, tasks, max_bad_fraction=allowed, notes=self.documents.notes)

    def summed(self, records: Sequence[Record], counts: Mapping[str, float]) -> Record:
        texts = reduce(add, (TextCounts(**record.info["texts"]) for record in records), TextCounts())
        chunks = [count for record in records for count in record.info.get("chunks", ())]
        skipped = [name for record in records for name in record.info.get("skipped_members", ())]
        return Record(
            unit=self.record,
            shard=self.documents.parts[0].name,
            key=self.key,
            inputs=tuple(item for record in records for item in record.inputs),
            files=tuple(
                file for record in records for file in record.files if layout.is_set_aside(file.path)
            ),
            rows=texts.documents,
            counts=dict(counts),
            rules=merge_rules(record.rules for record in records),
            seconds=sum(record.seconds for record in records),
            finished=max(record.finished for record in records),
            info={
                "texts": asdict(texts),
                "parts": [_sums(record) for record in records],
                **({"chunks": chunks} if chunks else {}),
                **({"skipped_members": skipped} if skipped else {}),
                **first_findings(records),
            },
        )

    def _row_plan(self, known: Record, made: Mapping[str, Record] | None = None) -> RowPlan:
        """Return all rows; to read their tokens, with the records of the staging files."""
        sums = known.info["parts"]
        checksums = {
            name: [one.checksum for one in record.files[:2]] for name, record in (made or {}).items()
        }
        staged = (
            StagedTokens(number, tokens, sequences, *checksums.get(staging_name(number), ()))
            for number, (tokens, sequences, _) in enumerate(sums)
        )
        return RowPlan(
            self.mode,
            tuple(staged),
            tuple(segments for _, _, segments in sums),
            tuple(known.info.get("chunks", ())),
            tuple(known.info.get(WINDOWS, ())),
        )

    def packed(self, known: Record, folder: str, made: Mapping[str, Record]) -> Record:
        """Return the record of the sums with the rows of all windows, counted here."""
        if self.mode.packing is None:
            return known
        pack = PackStage(folder, self.mode)
        return with_windows(known, map(pack.run_shard, pack.tasks(self._row_plan(known, made))))

    def rows_plan(
        self,
        known: Record,
        folder: str = "",
        made: Mapping[str, Record] | None = None,
        staged: Staged | None = None,
    ) -> Plan:
        """Return the plan of the files; to write some, with the folder and records of the staging files that they need, or all rows spread for a shuffle."""
        rows = self._row_plan(known, made)
        content = {item.path: item.checksum for item in known.inputs} | known.info.get(MADE_OF, {})
        listed = [content[item.info.path] for item in self.inputs]
        order = {} if self.shuffle_seed is None else {"shuffle": self.shuffle_seed}
        params = {"set": self.key, "inputs": listed, "max_rows": self.max_rows, **order}
        key = work_key("hdf5", VERSION, params)
        stage, tasks = self._files(rows, folder, key, staged)
        return Plan(
            stage=stage,
            root=self.root,
            tasks=tasks,
            params=self._shown,
            writes=_WRITES,
            origin=self.documents.origin,
            reads=(".h5",),
            all_units=frozenset(task.shard for task in tasks),
            beside=frozenset({PARAMS_NAME, *(segments_path(task.shard) for task in tasks)}),
            notes=self.documents.notes,
        )

    def _files(self, rows: RowPlan, folder: str, key: str, staged: Staged | None) -> tuple[Stage, list[Task]]:
        """Return what writes the files, and the work on each."""
        in_order = RowsStage(self.root, folder, self.mode, rows.tokens)
        if self.shuffle_seed is None:
            works = enumerate(rows.files(self.max_rows))
            return in_order, [in_order.task(number, work, key) for number, work in works]
        if staged is None:
            shuffled = ShuffledStage(in_order)
            return shuffled, shuffled.tasks(rows, self.max_rows, key)
        shuffled = ShuffledStage(in_order, staged.without_records, segment_pieces(staged))
        return shuffled, shuffled.tasks(rows, self.max_rows, key, staged.all.counts)

    @property
    def _shown(self) -> dict[str, Any]:
        """Options for people."""
        shown: dict[str, Any] = {"from": self.documents.origin}
        for section in self.sections.values():
            shown |= section
        specials = self.mode.specials
        return without_empty({**shown, "eos_id": specials.eos_id, "pad_id": specials.pad_id})

    def _needed(self, plan: Plan, left: Set[str]) -> list[int]:
        """Return the parts whose tokens the files read that are left."""
        if self.shuffle_seed is not None:
            return list(range(len(self.documents.parts)))
        works = [task.work for task in plan.tasks if task.shard in left]
        return sorted({part.number for work in works for part in work.parts})

    def _params(self, known: Record, records: Iterable[Record]) -> bytes:
        """Return the content of ``data_params.json``: from the records of what was written."""
        specials = self.mode.specials
        params = data_params(
            self.mode.features,
            specials.eos_id,
            specials.pad_id,
            self.mode.engine.vocab_size,
            TextCounts(**known.info["texts"]),
            _row_counts(records),
            {name: {**self.told.get(name, {}), **own} for name, own in self.sections.items()},
        )
        return msgspec.json.format(msgspec.json.encode(params), indent=2) + b"\n"

    def _has_params(self, params: bytes) -> bool:
        url = files.join(self.root, PARAMS_NAME)
        return files.stat(url) is not None and files.read_bytes(url) == params

    def _notes(self, known: Record, records: Iterable[Record]) -> Iterator[str]:
        """Say what a person would not expect to be missing."""
        texts, rows = TextCounts(**known.info["texts"]), _row_counts(records)
        if self.mode.stream_tail == "drop":
            lost = self._row_plan(known).tokens - rows.rows * self.mode.length
            yield f"{counted(max(lost - 1, 0), 'token')} of the tail are in no row (tail=drop)"
        if texts.empty and not {TOO_LONG, TOO_SHORT} & known.counts.keys():  # else they are named
            yield f"{counted(texts.empty, 'document')} made no row: fewer tokens than min_sequence_len"
        if rows.removed_tokens:
            yield f"{counted(rows.removed_tokens, 'token')} were taken out of rows that had become too long"
        if not rows.rows:
            is_short = self.mode.stream_tail is not None and texts.documents > 0
            yield "no row was written" + (": there are too few tokens for one" if is_short else "")
        yield from skipped_notes([known])
        yield from finding_notes([known])


def _is_read(name: str) -> bool:
    """Tell whether a file below the root is one that loaders or look-ups read."""
    is_beside = name.startswith(f"{FOLDER}/part-")
    return is_beside or ("/" not in name and (name.endswith(".h5") or name == PARAMS_NAME))


WINDOWS = "windows"
"""Rows of each window in the dataset-wide record, where several segments share a row."""


def with_windows(known: Record, rows: Iterable[Sequence[int]]) -> Record:
    """Return the record of the sums with the rows of each window."""
    return replace(known, info={**known.info, WINDOWS: [count for each in rows for count in each]})


def _sums(record: Record) -> list[int]:
    """Return the numbers of tokens, sequences and rows of tokenized documents."""
    return [record.info[name] for name in ("tokens", "sequences", "rows")]


def _row_counts(records: Iterable[Record]) -> RowCounts:
    return reduce(add, map(_counts_of, records), RowCounts())


def _counts_of(record: Record) -> RowCounts:
    try:
        return msgspec.convert(record.info.get("rows"), RowCounts)
    except msgspec.ValidationError:
        raise CorruptFileError(
            f"the journal does not say what {record.shard} holds: it is damaged. Make everything anew with --overwrite.",
            shard=record.shard,
        ) from None
