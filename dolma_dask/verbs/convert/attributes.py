"""convert, for attributes: the flat rows of AI2's pretrain-data layout to nested ones of the Dolma toolkit, and back.

Values stay byte for byte. The file is read beside its documents first, so that only attributes that line up are converted. The proof that
the journal has of the old file goes over to the new one; what was made of a file without a proof has none either.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from msgspec import Struct

from dolma_dask import engine
from dolma_dask.dataset import Dataset, Shard
from dolma_dask.engine import Task, Unit, attribute_plan, inputs_of
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.json.attributes import Form
from dolma_dask.formats.json.exact import LineError, parse_object, quoted_id
from dolma_dask.io import files
from dolma_dask.io.records import BadRecord
from dolma_dask.io.stream import LineBlock, StoredFile, compression_of, read_lines
from dolma_dask.journal import Record, work_key
from dolma_dask.options.base import without_empty
from dolma_dask.options.groups import ShardOptions
from dolma_dask.reading.catalog import open_attributes
from dolma_dask.reading.reader import AlignedShard, ReadState
from dolma_dask.reading.sets import CONVERTED, AttributeSets, AttributeSource, shard_inputs
from dolma_dask.results.summary import Summary
from dolma_dask.sinks.jsonl import JsonlWriter
from dolma_dask.sources.documents import join_members

VERSION = 2
"""Raised whenever a row is written otherwise."""

RESERVED = frozenset({"id", "source", "attributes", "error"})
"""Top-level keys of a row, which no attribute of the flat form may take."""


def convert_attributes(
    dataset: Dataset, name: str, form: Form, rename: str | None, options: ShardOptions
) -> Summary:
    """Write an attribute set in another form, as a further set of the same dataset; by default ``-nested`` or ``-flat`` is added to its name."""
    target = layout.check_name(rename or f"{name}-{form}", "attribute set")
    if target == name:
        raise UsageError(
            f"attribute set {name!r} cannot be converted in place; expected another name in `rename`."
        )
    shown = options.selected(dataset)
    sets = open_attributes(shown, [name])
    stage = AttributeFormStage(dataset.root, dataset.source, target, form)
    tasks = [stage.task(shard, sets) for shard in shown.shards]
    every = [layout.attribute_path(target, shard.path) for shard in dataset.shards]
    params = without_empty({"attributes": name, "form": form, "rename": target})
    plan = attribute_plan(stage, dataset, (target,), tasks, every, params)
    return engine.run(plan, options).summary


def check_convertible(inputs: Sequence[str], raw: Sequence[str]) -> str:
    """Return the dataset whose attributes are to be converted; refuse several inputs, and options for raw files (`raw`: those given)."""
    if len(inputs) != 1:
        raise UsageError(
            f"attributes are converted in one dataset; expected its folder or URL, found {len(inputs)} inputs."
        )
    if raw:
        raise UsageError(
            f"{', '.join(raw)}: for raw files only; attributes are converted with form, rename, source, only, prune and the like. "
            "Leave it out."
        )
    return inputs[0]


class AttributeFormStage(Struct, frozen=True):
    """The work on one attribute file."""

    root: str  # of the dataset
    default_source: str | None  # source of documents that lack the field
    target: str  # the new attribute set
    form: Form  # form to write
    verb: str = CONVERTED

    def task(self, shard: Shard, sets: AttributeSets) -> Task:
        """Return the work on `shard`."""
        (source,) = sets.sources(shard, ())
        below = source.info.path.split("/", 2)[2]
        path = layout.attribute_path(self.target, layout.with_format(below, _json_format(below)))
        key = work_key(self.verb, VERSION, {"form": self.form, "source": self.default_source})
        inputs = inputs_of(self.root, shard_inputs(shard, (source,)))
        return Task(shard.path, (Unit(path, key),), inputs, (shard, source))

    def run_shard(self, task: Task) -> list[Record]:
        """Convert one attribute file; see `dolma_dask.engine.Stage`."""
        shard, source = task.work
        aligned = AlignedShard(
            self.root, shard, sources=(source,), default_source=self.default_source, digests=True
        )
        state = aligned.open().read_all()
        with JsonlWriter(self.root, task.unit.name) as writer:
            for rows in self._rows(source):
                writer.write(rows)
        record = task.record(
            [writer.record],
            state.inputs,
            state.rows,
            ids_digest=state.ids_digest,
            content_digest=state.content_digest,
            counts={"documents_in": state.rows, "unproved_attribute_files": len(state.unproved)},
            info=_standing(state, source),
        )
        return [record]

    def _rows(self, source: AttributeSource) -> Iterator[pa.LargeBinaryArray]:
        url = files.join(self.root, source.info.path)
        with closing(StoredFile(url)) as stored:
            for block in read_lines(stored, compression_of(url)):
                rows = [self._row(url, block, row) for row in range(len(block.starts) - 1)]
                yield pa.array(rows, pa.large_binary())

    def _row(self, url: str, block: LineBlock, row: int) -> bytes:
        start, stop = block.starts[row : row + 2]
        try:
            members = parse_object(block.data[start:stop].tobytes())
            members |= {"id": quoted_id(members["id"].strip())} if "id" in members else {}
            return _nested(members) if self.form == "nested" else _flat(members)
        except LineError as error:
            position = (url, block.first_row + row, block.byte_offset + int(start))
            bad = BadRecord(*position, error.reason, error.expected, b"")
            raise bad.error("Make the attributes again.") from error


def _standing(state: ReadState, source: AttributeSource) -> dict[str, object]:
    """Return what the old file's proof, if it holds, says of the new one."""
    if state.unproved or source.proof is None:
        return {"unproved": True}
    return {"reads": ["text"] if source.proof.reads_text else ["id"]}


def _json_format(path: str) -> layout.FileFormat:
    stored = layout.format_of(path)
    if stored == "parquet":
        raise UsageError(
            f"{path}: attributes in Parquet have neither the flat nor the nested form; expected JSON lines."
        )
    return stored


def _nested(members: dict[str, bytes]) -> bytes:
    """Return the nested row; a nested one stays."""
    identity, source, error = (members.pop(name, None) for name in ("id", "source", "error"))
    inside = members["attributes"].strip() if "attributes" in members else _object(members)
    row = {"id": identity or b"null", "attributes": inside, "source": source, "error": error}
    return _object({name: value for name, value in row.items() if value is not None}) + b"\n"


def _flat(members: dict[str, bytes]) -> bytes:
    """Return the flat row; a flat one stays."""
    inside = parse_object(members["attributes"]) if "attributes" in members else {}
    taken = sorted(RESERVED & set(inside))
    if taken:
        raise LineError(
            "wrong_type", f"attribute keys other than {', '.join(sorted(RESERVED))}; found {taken[0]!r}"
        )
    values = inside or {name: value for name, value in members.items() if name not in RESERVED}
    row: dict[str, bytes] = {name: members[name] for name in ("source", "id") if name in members}
    row.update(values)
    if "error" in members:
        row["error"] = members["error"]
    return _object(row) + b"\n"


def _object(members: dict[str, bytes]) -> bytes:
    return join_members({name: value.strip() for name, value in members.items()}) or b"{}"
