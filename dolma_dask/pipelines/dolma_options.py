"""Options of the Dolma toolkit's commands: one field each, with its type, its default and a `Row` that says what it does here.

From these records follow what files and command lines may say, the options of the commands here, notes about what has no effect, help, and the
table of docs/dolma_toolkit.md.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Struct

from dolma_dask.errors import UsageError
from dolma_dask.formats.layout import FileFormat
from dolma_dask.pipelines.dolma_rows import Row, find_leaf, idle

_Documents = Annotated[
    list[str],
    Row(
        "the datasets in which the files lie, each the folder above `documents`, which there has to be, since attributes lie in `attributes/NAME` in its place; some of their files become `--only`; a pattern without files is refused"
    ),
]
_Processes = Annotated[int | None, Row("`--workers`; by default one per processor", "workers")]
_Debug = Annotated[
    bool,
    Row("`--scheduler synchronous`", "scheduler", lambda is_on: "synchronous" if is_on else None),
]
_DryRun = Annotated[
    bool,
    Row(
        "prints the resolved configuration, and as comments what would be called and done; unknown names are errors here too"
    ),
]
_Overwrite = Annotated[
    bool, Row("`--overwrite`; without it, finished files whose documents are the same stay", "overwrite")
]

# ------------------------------------------------------------------------------------------------ groups


class WorkDir(Struct, forbid_unknown_fields=True):
    """Folders for temporary files and markers."""

    input: Annotated[str | None, idle("files are read where they are")] = None
    output: Annotated[
        str | None,
        idle(
            "the journal beside what is written says what is done; markers (`.done.txt`) are neither read nor written"
        ),
    ] = None


FORMATS: Mapping[str, FileFormat] = {"gz": "jsonl.gz", "zst": "jsonl.zst", "": "jsonl"}


def format_of(name: str, what: str) -> FileFormat:
    """Return the format of files that are compressed in a way."""
    if name not in FORMATS:
        raise UsageError(f"compression.{what}: {name!r}; expected gz, zst, or '' for none.")
    return FORMATS[name]


class Compression(Struct, forbid_unknown_fields=True):
    """Compression of files: gz, zst, or '' for none."""

    input: Annotated[str | None, Row("has to agree with the names of the files, by which they are read")] = (
        None
    )
    output: Annotated[str | None, Row("format of the files that are written")] = None


class Profile(Struct, forbid_unknown_fields=True):
    """A profile by cProfile."""

    enable: Annotated[
        bool,
        idle("python -m cProfile -s tottime -m dolma_dask tag ... --scheduler synchronous makes a profile"),
    ] = False
    output: Annotated[str | None, idle("see profile.enable")] = None
    steps: Annotated[int | None, idle("see profile.enable")] = None
    sort_key: Annotated[str, idle("see profile.enable")] = "tottime"
    lines: Annotated[int, idle("see profile.enable")] = 100


# ------------------------------------------------------------------------------------------------ tag and list


class Tag(Struct, forbid_unknown_fields=True):
    """Options of `tag`."""

    documents: _Documents = []
    destination: Annotated[
        list[str] | None,
        Row("has to be `<dataset>/attributes/<experiment>`, where attributes always lie; others are refused"),
    ] = None
    tagger_modules: Annotated[list[str], Row("`--tagger-modules`", "tagger_modules")] = []
    taggers: Annotated[list[str], Row("`--taggers`; unknown names are errors", "taggers")] = []
    experiment: Annotated[str | None, Row("`--experiment`", "experiment")] = None
    processes: _Processes = None
    ignore_existing: _Overwrite = False
    debug: _Debug = False
    profile: Profile = msgspec.field(default_factory=Profile)
    work_dir: WorkDir = msgspec.field(default_factory=WorkDir)
    dryrun: _DryRun = False


class List(Struct, forbid_unknown_fields=True):
    """Options of `list`."""

    tagger_modules: Annotated[list[str], Row("`--tagger-modules`", "tagger_modules")] = []


# ------------------------------------------------------------------------------------------------ dedupe


class DedupeDocuments(Struct, forbid_unknown_fields=True):
    """Duplicates among documents."""

    attribute_name: Annotated[str | None, Row("`--key`, the key of the flags", "key")] = None
    key: Annotated[
        str | None,
        Row(
            "`--by`: `$.text`, `$.metadata.url`; `$.id` compares source and id together. Values of any type count, and a document without one has no duplicate"
        ),
    ] = None


class DedupeByNgram(Struct, forbid_unknown_fields=True):
    """Paragraphs compared by n-grams of words."""

    ngram_length: Annotated[int, Row("`--ngram`; 0 compares whole paragraphs")] = 0
    stride: Annotated[int, Row("`--stride`")] = 0
    overlap_threshold: Annotated[float, Row("`--overlap`")] = 1.0
    skip_short_paragraphs: Annotated[bool, Row("`--skip-short`; n-grams never equal whole paragraphs")] = (
        False
    )


class DedupeParagraphs(Struct, forbid_unknown_fields=True):
    """Duplicates among paragraphs."""

    attribute_name: Annotated[str | None, Row("`--unit paragraph --key`")] = None
    by_ngram: DedupeByNgram = msgspec.field(default_factory=DedupeByNgram)
    paragraph_separator: Annotated[
        str, Row("`--separator`, of any length; spans are right for it, and never end behind the text")
    ] = "\n"


_PARTITION = "one run goes over all documents, with any number of workers"


class DedupeGroup(Struct, forbid_unknown_fields=True):
    """How documents are compared."""

    name: Annotated[str | None, Row("`--name`, the attribute set; by default `attribute_name`")] = None
    dedupe_method: Annotated[
        str | None,
        Row("has to be the group that is there, `documents` or `paragraphs`, which says it already"),
    ] = None
    documents: DedupeDocuments = msgspec.field(default_factory=DedupeDocuments)
    paragraphs: DedupeParagraphs = msgspec.field(default_factory=DedupeParagraphs)
    skip_empty: Annotated[bool, Row("`--skip-empty`", "skip_empty")] = False
    min_length: Annotated[int, Row("`--min-length`, in characters", "min_length")] = 0
    min_words: Annotated[int, Row("`--min-words`; with it the toolkit flags nothing", "min_words")] = 0
    num_partitions: Annotated[
        int,
        Row("with more than one, partition 0 does all of it, in the set `<name>_0`, and the others nothing"),
    ] = 1
    partition_index: Annotated[int, Row("see num_partitions")] = 0
    file_partition: Annotated[bool, idle(_PARTITION)] = False
    document_dir: Annotated[str, Row("has to be `documents`")] = "documents"


class BloomFilter(Struct, forbid_unknown_fields=True):
    """The filter in which the toolkit remembers keys."""

    file: Annotated[
        str | None,
        Row(
            "`--bloom`, a filter of another format, written behind exact flags; a file that is there and was not made by the same call is refused"
        ),
    ] = None
    read_only: Annotated[
        bool,
        Row(
            "`--read-only`: flags what is in the filter, one of the toolkit too if it is of documents or whole paragraphs; without a file it is an error"
        ),
    ] = False
    size_in_bytes: Annotated[int, Row("`--bloom-bytes`")] = 0
    estimated_doc_count: Annotated[int, Row("`--bloom-keys`; 0: as many as there are")] = 0
    desired_false_positive_rate: Annotated[
        float, Row("`--bloom-rate`, of the filter: flags are exact; below 1e-12 it is that")
    ] = 0
    sysram_limit: Annotated[
        float | None, idle("a filter is made piece by piece, and no worker holds all of it")
    ] = None


class Dedupe(Struct, forbid_unknown_fields=True):
    """Options of `dedupe`."""

    documents: _Documents = []
    dedupe: DedupeGroup = msgspec.field(default_factory=DedupeGroup)
    bloom_filter: BloomFilter = msgspec.field(default_factory=BloomFilter)
    processes: _Processes = None
    compression: Compression = msgspec.field(default_factory=Compression)
    work_dir: WorkDir = msgspec.field(default_factory=WorkDir)
    dryrun: _DryRun = False
    is_s3_volume: Annotated[bool, idle("files are written whole or not at all, as the place allows")] = False


# ------------------------------------------------------------------------------------------------ mix


class StreamOutput(Struct, forbid_unknown_fields=True):
    """Files of a stream."""

    path: Annotated[str, Row("the folder of the new documents; journals lie beside it")]
    max_size_in_bytes: Annotated[
        int | None,
        Row(
            "stored size of an output file, by default 2 GiB; there the stored sizes of its inputs (`--compat dolma-1.2`)"
        ),
    ] = None
    discard_fields: Annotated[list[str], Row("the same")] = []
    min_text_length: Annotated[int, Row("the same, in bytes")] = 0


class StreamFilter(Struct, forbid_unknown_fields=True):
    """Documents that a stream keeps."""

    include: Annotated[list[str], Row("the same, but that numbers compare as numbers")] = []
    exclude: Annotated[list[str], Row("the same, but that numbers compare as numbers")] = []
    syntax: Annotated[str, Row("jsonpath or jq")] = "jsonpath"


class Span(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Spans of an attribute to replace."""

    span: Annotated[str, Row("the same")]
    min_score: Annotated[float | None, Row("the same")] = None
    max_score: Annotated[float | None, Row("the same: exclusive")] = None
    replacement: Annotated[str | None, Row("the same; other spans move with their text (`--keep-spans`)")] = (
        None
    )
    syntax: Annotated[str | None, Row("jsonpath or jq")] = None


class StreamConfig(Struct, forbid_unknown_fields=True):
    """One stream."""

    name: Annotated[str, Row("files are `<name>-0000.jsonl.gz`, the last one too")]
    documents: Annotated[list[str], Row("the same; a file that is damaged fails")]
    output: StreamOutput
    attributes: Annotated[list[str], Row("the same; a set that is missing or short fails")] = []
    filter: StreamFilter = msgspec.field(default_factory=StreamFilter)
    span_replacement: list[Span] = []
    compression: Compression = msgspec.field(default_factory=Compression)
    sample_rate: Annotated[float | None, Row("not of the toolkit: takes this share of the documents")] = None


class Mix(Struct, forbid_unknown_fields=True):
    """Options of `mix`."""

    streams: list[StreamConfig] = []
    processes: _Processes = None
    work_dir: WorkDir = msgspec.field(default_factory=WorkDir)
    shuffle: Annotated[
        bool,
        Row("the same: true cuts files by size, false writes a file per input file, and neither shuffles"),
    ] = True
    dryrun: _DryRun = False
    seed: Annotated[int | None, Row("not of the toolkit: shuffles the documents of each stream")] = None


# ------------------------------------------------------------------------------------------------ tokens and stat

_SHUFFLED = "documents of all files are shuffled, by the seed"


class Tokenizer(Struct, forbid_unknown_fields=True):
    """What makes ids."""

    name_or_path: Annotated[
        str | None, Row("`--tokenizer`: a tokenizer.json, its folder, or a model on the hub")
    ] = None
    bos_token_id: Annotated[int | None, Row("`--bos`, the text of the token")] = None
    eos_token_id: Annotated[int | None, Row("`--eos`, the text of the token")] = None
    pad_token_id: Annotated[int | None, idle("documents are not padded")] = None
    segment_before_tokenization: Annotated[
        bool, Row("`--segment-before-tokenization`", "segment_before_tokenization")
    ] = False
    refresh: Annotated[int, idle("the tokenizer holds nothing that grows")] = 0
    fast: Annotated[bool, idle("the tokenizer is that of tokenizer.json")] = True
    encode_special_tokens: Annotated[
        bool,
        Row(
            "`--special-tokens-in-text text`: their characters are encoded",
            "special_tokens_in_text",
            lambda is_on: "text" if is_on else "encode",
        ),
    ] = False


class Fields(Struct, forbid_unknown_fields=True):
    """Fields of documents."""

    text_field_name: Annotated[str, Row("has to be `text`")] = "text"
    text_field_type: Annotated[str, idle("texts are text")] = "str"
    id_field_name: Annotated[str | None, Row("`--id-key`, such as metadata.url")] = "id"
    id_field_type: Annotated[str, idle("ids are written as text")] = "str"


class Tokens(Struct, forbid_unknown_fields=True):
    """Options of `tokens`."""

    documents: Annotated[
        list[str],
        Row(
            "any files of documents: of those below a folder `documents` the dataset above it, some of its files become `--only`; of others all that a pattern matches is one dataset; a pattern without files is refused"
        ),
    ] = []
    destination: Annotated[
        str | None,
        Row(
            "the folder; with several datasets, one below it for each. Its `.csv.gz` name files as seen from their dataset, `documents/...`, or from where their pattern begins"
        ),
    ] = None
    tokenizer_name_or_path: Annotated[
        str | None, Row("`--tokenizer`, with the last token of the vocabulary as `--eos`")
    ] = None
    tokenizer: Tokenizer = msgspec.field(default_factory=Tokenizer)
    processes: _Processes = None
    files_per_process: Annotated[int | None, idle("files are cut by max_size alone")] = None
    batch_size: Annotated[int, idle(_SHUFFLED)] = 10_000
    ring_size: Annotated[int, idle(_SHUFFLED)] = 8
    fields: Fields = msgspec.field(default_factory=Fields)
    sample_ring_prop: Annotated[bool, idle(_SHUFFLED)] = False
    max_size: Annotated[
        int, Row("`--max-size`, in bytes; a larger document has a file of its own", "max_size")
    ] = 1 << 30
    dtype: Annotated[str, idle("uint16, or uint32 where the vocabulary needs it")] = "uint16"
    debug: _Debug = False
    seed: Annotated[int, Row("`--seed`: the same seed gives the same files", "seed")] = 3920
    work_dir: WorkDir = msgspec.field(default_factory=WorkDir)
    dryrun: _DryRun = False


class Stat(Struct, forbid_unknown_fields=True):
    """Options of `stat`."""

    attributes: Annotated[
        list[str],
        Row(
            "any files of attributes: of those below a folder `attributes` the datasets, and `--attributes` with their sets; others by themselves"
        ),
    ] = []
    report: Annotated[str | None, Row("`--report`; with several datasets, a folder below it for each")] = None
    bins: Annotated[int, Row("`--bins`", "bins")] = 1000
    processes: _Processes = None
    seed: Annotated[int, idle("nothing is drawn")] = 0
    total: Annotated[bool, idle("totals and sums are always there")] = False
    debug: _Debug = False
    work_dir: WorkDir = msgspec.field(default_factory=WorkDir)
    regex: Annotated[str | None, Row("`--regex`", "regex")] = None


# ------------------------------------------------------------------------------------------------ warc


class PreTaggers(Struct, forbid_unknown_fields=True):
    """Taggers of pages, before their text is found."""

    taggers: Annotated[
        list[str],
        Row(
            "`--pre-taggers`: they see the page and its address, and their numbers are of the text that is found; those that look at the text alone are refused",
            "pre_taggers",
        ),
    ] = []
    skip: Annotated[bool, Row("`--pre-skip`: leaves out pages without a finding", "pre_skip")] = False


class PostTaggers(Struct, forbid_unknown_fields=True):
    """Taggers of texts."""

    taggers: Annotated[list[str], Row("`--post-taggers`", "post_taggers")] = []
    skip: Annotated[bool, Row("`--post-skip`: leaves out documents without a finding", "post_skip")] = False


class Warc(Struct, forbid_unknown_fields=True):
    """Options of `warc`."""

    source_name: Annotated[str, Row("`--source`", "source")]
    documents: Annotated[
        list[str], Row("the WARC and WET files, folders or patterns that `convert` reads")
    ] = []
    destination: Annotated[
        list[str], Row("`--to`, one dataset; files lie in its `documents`, which may stand at the end")
    ] = []
    processes: _Processes = None
    ignore_existing: _Overwrite = False
    debug: _Debug = False
    linearizer: Annotated[str, Row("`--extractor`", "extractor")] = "resiliparse"
    pre: PreTaggers = msgspec.field(default_factory=PreTaggers)
    post: PostTaggers = msgspec.field(default_factory=PostTaggers)
    store_html_in_metadata: Annotated[bool, Row("`--store-html`", "store_html")] = False
    work_dir: WorkDir = msgspec.field(default_factory=WorkDir)
    dryrun: _DryRun = False


# ------------------------------------------------------------------------------------------------ reshard


class Prefix(Struct, forbid_unknown_fields=True):
    """Token files below a folder."""

    prefix: Annotated[str, Row("a folder of `--sources`")]
    sample_rate: Annotated[float, Row("its rate; the sample is drawn by the seed")]


class Reshard(Struct, forbid_unknown_fields=True):
    """Options of `python -m dolma.tokenizer.reshard`."""

    source_prefixes: list[Prefix]
    destination_prefix: Annotated[str, Row("the folder of the new files")]
    local_tempdir: Annotated[str | None, idle("files are joined where they are")] = None
    max_size_bytes: Annotated[int | None, Row("`--max-size`", "max_size")] = None
    max_num_files: Annotated[int | None, Row("`--shards`", "shards")] = None
    max_workers: Annotated[int | None, Row("`--workers`", "workers")] = None
    random_seed: Annotated[int, Row("`--seed`", "seed")] = 42
    tokenizer_name_or_path: Annotated[str, idle("the ids have the size that their files say")] = (
        "allenai/dolma2-tokenizer"
    )


CONFIGS: Mapping[str, type[Struct]] = {
    "tag": Tag,
    "dedupe": Dedupe,
    "mix": Mix,
    "tokens": Tokens,
    "list": List,
    "stat": Stat,
    "warc": Warc,
    "reshard": Reshard,
}
"""Records of the commands, by name."""


def knows(name: str, option: str) -> bool:
    """Tell whether a command of the toolkit has an option."""
    return find_leaf(CONFIGS[name], option) is not None
