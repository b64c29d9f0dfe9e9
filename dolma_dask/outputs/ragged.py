"""Token shards of documents: the ids of all documents of a shard, in the format of whoever reads them (`dolma_dask.formats.token_files`).

Memory: a few blocks and 256 KB of text being encoded per worker; ids are kept in local scratch until the header is known.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from dolma_dask.display import counted
from dolma_dask.engine import Plan, Unit
from dolma_dask.engine.documents import DocumentList, file_plan
from dolma_dask.engine.plan import Index
from dolma_dask.errors import UsageError
from dolma_dask.formats import layout
from dolma_dask.formats.mds import mds_index
from dolma_dask.formats.ragged import RaggedNames, SourceRecord, ragged_names
from dolma_dask.formats.segments import FOLDER, segments_path, with_segments
from dolma_dask.formats.token_files import FORMATS, SIDECAR, FormatName, TokenFormat
from dolma_dask.io import files
from dolma_dask.io.quarantine import RecordPolicy
from dolma_dask.io.records import BadRecord, FileRecord
from dolma_dask.journal import Record
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.outputs.tokenizing import TokenizingOptions
from dolma_dask.sinks.findings import TextFindings
from dolma_dask.sinks.ragged import TokenWriter
from dolma_dask.sinks.segments import SegmentsWriter
from dolma_dask.sinks.sink import DocumentRows, ShardFacts, WriterSink
from dolma_dask.sinks.token_files import WRITERS
from dolma_dask.text import compute as pc
from dolma_dask.tokens.encoding import Tokens
from dolma_dask.tokens.engine import TokenEngine
from dolma_dask.tokens.specials import Framing
from dolma_dask.tokens.spelled import InText
from dolma_dask.tokens.toolkit import encode_by_lines, frame_once, puts_space_first, strip

WITHOUT_TEXT = "documents_without_text"
"""Count of documents that are left out since they have no text but white space."""


@dataclass(frozen=True, kw_only=True)
class ArrayOptions(TokenizingOptions):
    """Options that decide token arrays, as `ragged`, the mixes that make them and `write_ragged` take them."""

    tokenizer: Annotated[
        str,
        Opt(
            "A tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub: EleutherAI/pythia-70m, with a revision behind @."
        ),
    ]
    bos: Annotated[
        str | int | None,
        Opt("Token to put before each document, or none, the default. In Python also its id."),
    ] = None
    eos: Annotated[
        str | int | None,
        Opt(
            "Token to put after each document, or none; by default that of the tokenizer for dolma, megatron and datatrove, whose readers need one, else "
            "none. In Python also its id."
        ),
    ] = None
    format: Annotated[
        FormatName,
        Opt(
            "Format of the files: numpy (ids and lengths), parquet (a row per document), dolma (as the Dolma toolkit's tokens, for OLMo), megatron "
            "(.bin and .idx), datatrove (.ds) or mds (MosaicML's streaming datasets).",
            group=OUTPUT,
        ),
    ] = "numpy"
    compat: Annotated[
        Literal["dolma-1.2"] | None,
        Opt(
            "dolma-1.2: encode texts as the Dolma toolkit's tokens. White space around a text goes, documents of nothing else are left out and counted, special tokens that a text "
            "spells out are control tokens (unless `special_tokens_in_text` says otherwise), and a document that begins with `bos` or ends in `eos` gets no second one."
        ),
    ] = None
    segment_before_tokenization: Annotated[
        bool,
        Opt(
            "Encode each paragraph by itself, with the line ends before it: no token goes over a line end. As the option of the Dolma toolkit."
        ),
    ] = False
    name: Annotated[
        str | None,
        Opt(
            "Beginning of the file names; by default the dataset's folder. Shards that are numbered already, as C4's, keep their names.",
            group=OUTPUT,
        ),
    ] = None

    @property
    def in_text(self) -> InText:
        """See `TokenizingOptions`."""
        return self.special_tokens_in_text or ("text" if self.compat is None else "encode")

    def output(self, to: str) -> "RaggedOutput":
        """Return what makes token shards in the folder `to`."""
        engine, is_stream = self.opened(), FORMATS[self.format].is_stream
        framing = Framing.of(engine, self.bos, self.eos, has_end=is_stream)
        FORMATS[self.format].dtype(engine.max_id)
        how = Preparation(self.compat is not None, self.segment_before_tokenization)
        return RaggedOutput(files.normalize(to), engine, framing, self.format, how)


class Preparation(Struct, frozen=True):
    """Treatment of texts before they are encoded, and of their bounds; see `dolma_dask.tokens.toolkit`."""

    as_toolkit: bool = False  # texts are stripped, special tokens put only where they are not there yet
    by_lines: bool = False  # paragraphs are encoded one by one

    def params(self) -> dict[str, Any]:
        """Return what decides the ids, for keys."""
        compat = {"compat": "dolma-1.2"} if self.as_toolkit else {}
        return {**compat, **({"segment_before_tokenization": True} if self.by_lines else {})}

    def encode(self, engine: TokenEngine, texts: pa.LargeStringArray) -> Tokens:
        """Return the ids of texts."""
        if not self.by_lines:
            return engine.encode(texts)
        return encode_by_lines(engine.encode, texts, has_prefix=puts_space_first(engine))

    def frame(self, tokens: Tokens, framing: Framing) -> Tokens:
        """Put special tokens around documents."""
        return frame_once(tokens, framing) if self.as_toolkit else framing.apply(tokens)


class RaggedOutput(Struct, frozen=True):
    """A token shard for each shard of documents, of `ragged` itself or beside the documents of a mix."""

    root: str
    engine: TokenEngine
    framing: Framing  # special tokens around each document
    format: FormatName = "numpy"
    how: Preparation = Preparation()
    id_key: str | None = None  # column with what stands for the id of each document
    folder: str = layout.DOCUMENTS  # where documents lie below their dataset, see `Shard.folder`
    verb: ClassVar[str] = "ragged"

    @property
    def files(self) -> TokenFormat:
        """Files of the format."""
        return FORMATS[self.format]

    @property
    def columns(self) -> tuple[str, ...]:
        """See `dolma_dask.sinks.sink.Output`."""
        return (*self.files.columns, *([self.id_key] if self.id_key else []))

    @property
    def cost(self) -> str:
        """See `dolma_dask.engine.map.Map.cost`."""
        return self.engine.cost

    def open(self, unit: Unit, shard: str) -> "RaggedSink":
        """See `dolma_dask.sinks.sink.Output`."""
        names = RaggedNames(unit.name.removesuffix(self.files.data))
        source = SourceRecord(layout.document_path(shard, self.folder), {})
        return RaggedSink(self, shard, self.writer(names, source), self.segments(names))

    def writer(self, names: RaggedNames, source: SourceRecord | None = None) -> TokenWriter:
        """Return the writer of a token shard."""
        return WRITERS[self.format](self.root, names, self.framing.record(self.engine), source=source)

    def segments(self, names: RaggedNames) -> SegmentsWriter:
        """Return the writer of its segments, to be left before it."""
        return SegmentsWriter(self.root, names.stem + self.files.data)

    def params(self) -> dict[str, Any]:
        """Return what decides the bytes besides the documents, for keys."""
        bos, eos = self.framing.bos, self.framing.eos
        return {
            **self.engine.params(),
            "bos": bos and bos.id,
            "eos": eos and eos.id,
            **({} if self.format == "numpy" else {"format": self.format}),
            **self.how.params(),
            **({"id_key": self.id_key} if self.id_key else {}),
            **({} if self.folder == layout.DOCUMENTS else {"folder": self.folder}),
        }

    def shown(self) -> dict[str, Any]:
        """Return the same for people, in place of it."""
        bos, eos = self.framing.bos, self.framing.eos
        return {
            "tokenizer": self.engine.file_name,
            "tokenizer_fingerprint": self.engine.fingerprint,
            "distrusts": self.engine.distrusts or None,
            "special_tokens_in_text": None if self.engine.in_text == "text" else self.engine.in_text,
            "bos": bos and bos.token,
            "eos": eos and eos.token,
        }

    def plan(self, documents: DocumentList, name: str | None, policy: RecordPolicy) -> Plan:
        """Return the plan of a token shard for each shard, whose names begin with `name`, by default that of the folder of documents."""
        names = names_of(documents.shards, name or files.normalize(documents.origin).rsplit("/", 1)[-1])
        plan = file_plan(
            self,
            documents,
            {shard: item.stem + self.files.data for shard, item in names.items()},
            policy,
            self.params(),
            version=self.files.version,
            shown=self.shown(),
        )
        others, index = tuple(self.others(own_names(names))), self.files.index
        if index and others:
            raise UsageError(
                f"{others[0]}, by {index}, which names those of one dataset alone; expected a folder for each."
            )
        beside = {item.stem + suffix for item in names.values() for suffix in self.files.beside}
        beside |= {segments_path(item.stem + self.files.data) for item in names.values()}
        prefixes = {f"{item.numbered[0]}." for item in names.values() if item.numbered}
        units = tuple(item.stem + self.files.data for item in names.values())
        return replace(
            plan,
            index=Index(index, units, _index_of) if index else None,
            other_indexes={
                one.index: one.data for one in FORMATS.values() if one.index and one != self.files
            },
            writes=tuple(sorted({*with_segments(prefixes), *([index] if index else [])})),
            reads=tuple(suffix for suffix in (self.files.data, *self.files.beside) if suffix != SIDECAR),
            beside=frozenset(beside | ({index} if index else set())),
            own_names=own_names(names),
            notes=(*plan.notes, *self.engine.notes, *others),
        )

    def others(self, own_names: str) -> Iterator[str]:
        """Say that the folder holds token files of other runs, which those who open it take for one with these; `own_names` is a regular expression."""
        ours = re.compile(own_names)
        found = [info.path for info in files.list_files(self.root) if info.path.endswith(self.files.data)]
        others = [path for path in found if not ours.match(path) and "/" not in path]
        if others:
            yield f"{self.root} holds {counted(len(others), 'token shard')} of other datasets too, first {others[0]}: who opens the folder reads all"


def _index_of(records: Sequence[Record]) -> bytes:
    return mds_index([(record.files[0].path, record.files[0].bytes, record.rows) for record in records])


def own_names(names: Mapping[str, RaggedNames]) -> str:
    """Return the regular expression of the names that token shards of these datasets may have, whatever their number; for ``v0`` not those of ``v0.1``."""
    datasets = sorted({item.numbered[0] for item in names.values() if item.numbered})
    return rf"(?:{FOLDER}/)?(?:{'|'.join(map(re.escape, datasets))})\.\d+-of-\d+\."


def names_of(shards: Sequence[str], prefix: str) -> dict[str, RaggedNames]:
    """Return the names of the token shards of all shards, which must be in order."""
    return dict(zip(shards, ragged_names(list(shards), prefix), strict=True))


class RaggedSink(WriterSink[TokenWriter]):
    """Writes the token shard of one shard of documents."""

    def __init__(
        self,
        output: "RaggedOutput",
        shard: str,
        writer: TokenWriter,
        segments: SegmentsWriter | None = None,
    ) -> None:
        self._output, self._path = output, layout.document_path(shard, output.folder)
        super().__init__(writer)
        self._segments = segments
        self._findings = TextFindings(shard, output.engine.in_text)
        self._without_text = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.writer)
            stack.enter_context(self._segments or nullcontext())  # appear first
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def write(self, rows: DocumentRows) -> list[BadRecord]:
        """See `dolma_dask.sinks.sink.Sink`."""
        output, writer = self._output, self.writer
        if output.id_key is not None:
            rows = _named(rows, output.id_key)
        if output.how.as_toolkit:
            count = rows.batch.num_rows
            rows = stripped(rows)
            self._without_text += count - rows.batch.num_rows
        tokens, kept, bad = self._findings.encode(
            rows, lambda some: (output.how.encode(output.engine, some.batch.column("text")), some)
        )
        tokens = output.how.frame(tokens, output.framing)
        writer.write(tokens, kept)
        if self._segments is not None:
            self._segments.write_documents(tokens.lengths, kept, self._path)
        writer.special_tokens, writer.lossy_documents = self._findings.spelled, self._findings.lossy
        return bad

    def record(self, unit: Unit, facts: ShardFacts, quarantined: tuple[FileRecord, ...]) -> Record:
        """See `dolma_dask.sinks.sink.Sink`."""
        writer, sums = self.writer, self._findings.sums(facts)
        if self._output.how.as_toolkit:
            kept = {"documents_out": facts.counts["documents_out"], **sums}["documents_out"]
            sums |= {"documents_out": kept - self._without_text, WITHOUT_TEXT: self._without_text}
        segments = () if self._segments is None else (self._segments.record,)
        return facts.record(
            unit,
            (*writer.files, *segments, *quarantined),
            writer.documents,
            counts={
                "tokens": writer.tokens,
                "bytes_out": sum(file.bytes for file in writer.files),
                **sums,
            },
            info={
                "dtype": writer.dtype.str,
                "tokenizer": self._output.engine.fingerprint,
                **self._findings.info,
            },
        )


def stripped(rows: DocumentRows) -> DocumentRows:
    """Return documents without white space around their texts, but those that have no other text."""
    texts = strip(rows.batch.column("text"))
    has_text = pc.greater(pc.binary_length(texts), 0)
    columns = [texts if name == "text" else rows.batch.column(name) for name in rows.batch.schema.names]
    batch = pa.RecordBatch.from_arrays(columns, rows.batch.schema.names).filter(has_text)
    mask = has_text.to_numpy(zero_copy_only=False)
    return DocumentRows(
        batch, rows.numbers[mask], None if rows.lines is None else rows.lines.filter(has_text)
    )


def _named(rows: DocumentRows, key: str) -> DocumentRows:
    """Return documents with the values of a column for ids, where it has some."""
    batch = rows.batch
    ids = pc.coalesce(batch.column(key).cast(pa.large_string()), batch.column("id").cast(pa.large_string()))
    named = batch.set_column(batch.schema.get_field_index("id"), "id", ids)
    return DocumentRows(named, rows.numbers, rows.lines, rows.dropped)
