"""One entry per command: what the command line, pipelines, the package's public names, journals, reports and tests have to know of it.

Functions stand here as import paths and are imported when they are called, so that help costs a tenth of a second.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple


class Verb(NamedTuple):
    """A command. Names of options are those of its function; they also count inside of maps, such as those of ``mix``'s `ragged`."""

    name: str
    function: str  # "module:function"
    help: str  # its line in the list of commands
    reads: tuple[str, ...] = ()  # options that name datasets or folders
    files: tuple[str, ...] = ()  # options that name files, which have to be there before anything runs
    # options that name what is written; `dataset`: beside the documents that are read
    writes: tuple[str, ...] = ("to",)
    writes_with: tuple[str, ...] = ()  # options with which it writes beside the documents too
    makes: Literal["documents", "tokens", "page", ""] = ""  # what readers of journals have to tell apart
    needs: str = ""  # package that only it needs; see `dolma_dask.extras`
    # what it adds to a report: "module:function", from what its journal tells (`results.summary.Recorded`) to `Table`s
    tables: str = ""
    # of `writes`: an option that names a file which is read, where the other option is given
    read_where: tuple[str, str] = ("", "")
    # the command goes over all datasets below a root that is none itself
    over_all: bool = False

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        return load(self.function)


def load(path: str) -> Callable[..., Any]:
    """Import a function by ``module:name``."""
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def _by_name(*verbs: Verb) -> dict[str, Verb]:
    return {verb.name: verb for verb in verbs}


VERBS = _by_name(
    Verb(
        "download",
        "dolma_dask.verbs.download.verb:download",
        "Fetch published files over the web or from a store, each whole.",
        reads=("inputs",),
    ),
    Verb(
        "convert",
        "dolma_dask.verbs.convert.verb:convert",
        "Turn raw files into documents in the Dolma layout.",
        reads=("inputs",),
        makes="documents",
    ),
    Verb(
        "validate",
        "dolma_dask.verbs.validate.verb:validate",
        "Check every file and every row of a dataset.",
        reads=("dataset", "against"),
        tables="dolma_dask.verbs.validate.summary:recorded_tables",
        over_all=True,
    ),
    Verb(
        "tag",
        "dolma_dask.verbs.tag.verb:tag",
        "Run taggers over every document, in one pass.",
        reads=("dataset", "artifacts", "against"),
        files=("tokenizer",),
        writes=("dataset",),
        tables="dolma_dask.verbs.tag.recorded:recorded_tables",
    ),
    Verb(
        "attach",
        "dolma_dask.verbs.attach:attach",
        "Make attributes of published quality signals or duplicates.",
        reads=("dataset", "tables"),
        writes=("dataset",),
    ),
    Verb(
        "dedupe",
        "dolma_dask.verbs.dedupe.verb:dedupe",
        "Flag all but one of the documents that are equal or similar.",
        reads=("dataset", "others", "signatures"),
        writes=("dataset", "others", "bloom"),
        read_where=("bloom", "read_only"),
        tables="dolma_dask.verbs.dedupe.summary:recorded_tables",
    ),
    Verb(
        "sign",
        "dolma_dask.verbs.sign:sign",
        "Write MinHash signatures, or tables of duplicates, as RedPajama-V2 publishes them.",
        reads=("dataset",),
    ),
    Verb(
        "signals",
        "dolma_dask.verbs.signals:signals",
        "Write quality signals as RedPajama-V2 publishes them.",
        reads=("dataset", "artifacts"),
    ),
    Verb(
        "block",
        "dolma_dask.verbs.block.verb:block",
        "Flag the documents that stand in a list of ids.",
        reads=("dataset",),
        files=("list_file",),
        writes=("dataset",),
    ),
    Verb(
        "remove",
        "dolma_dask.verbs.remove.verb:remove",
        "Take documents down everywhere below a root, and keep them out of what is written later.",
        reads=("root",),
        files=("ids",),
        writes=("root",),
    ),
    Verb(
        "quantiles",
        "dolma_dask.verbs.quantiles.verb:quantiles",
        "Find quantiles of signals, and thresholds, per group of documents.",
        reads=("dataset",),
        writes=("dataset",),
        tables="dolma_dask.verbs.quantiles.recorded:recorded_tables",
    ),
    Verb(
        "filter",
        "dolma_dask.verbs.filter.verb:filter",
        "Write how many levels of thresholds each document passes, in each rule.",
        reads=("dataset",),
        files=("thresholds",),
        writes=("dataset",),
        tables="dolma_dask.verbs.filter.summary:recorded_tables",
    ),
    Verb(
        "mix",
        "dolma_dask.verbs.mix.verb:mix",
        "Write a new version with the documents that a rule keeps.",
        reads=("dataset",),
        files=("block", "allow", "thresholds", "tokenizer"),
        writes=("to", "dropped"),
        writes_with=("block", "allow"),
        makes="documents",
        tables="dolma_dask.verbs.mix.drawn:recorded_tables",
    ),
    Verb(
        "transform",
        "dolma_dask.verbs.transform.verb:transform",
        "Rewrite the texts of documents by a function of yours.",
        reads=("dataset",),
        makes="documents",
    ),
    Verb(
        "ragged",
        "dolma_dask.verbs.ragged:ragged",
        "Tokenize documents into files of ids: NumPy arrays, or in the format of a trainer.",
        reads=("dataset",),
        files=("tokenizer",),
        makes="tokens",
    ),
    Verb(
        "reshard",
        "dolma_dask.verbs.reshard:reshard",
        "Join token files of the Dolma toolkit's format to files of one size, with rates.",
        reads=("sources",),
    ),
    Verb(
        "hdf5",
        "dolma_dask.verbs.hdf5.verb:hdf5",
        "Pack documents into HDF5 rows for Cerebras systems.",
        reads=("dataset",),
        files=("tokenizer",),
        tables="dolma_dask.verbs.hdf5.recorded:recorded_tables",
    ),
    Verb(
        "report",
        "dolma_dask.pages.verb:report",
        "Write one HTML page that shows what happened.",
        reads=("dataset", "compare", "tokens"),
        makes="page",
        needs="bokeh",
    ),
)
"""Verbs: they write, resume, and can be stages of a pipeline. In the order of help and of the tables of a report."""

COMMANDS = VERBS | _by_name(
    Verb(
        "run",
        "dolma_dask.pipelines.pipeline:run",
        "Run the stages of a YAML file, with one cluster, and go on where they stopped.",
    ),
    Verb(
        "estimate",
        "dolma_dask.pipelines.estimate.question:estimate",
        "Tell what a pipeline will cost, from its stages on a small sample.",
    ),
    Verb(
        "look",
        "dolma_dask.questions.look.question:look",
        "Tell what raw files hold, and the command that converts them.",
    ),
    Verb(
        "status",
        "dolma_dask.questions.status.question:status",
        "Tell what is done, left and changed in a dataset, or in all below a root.",
        over_all=True,
    ),
    Verb(
        "versions",
        "dolma_dask.questions.versions:versions",
        "List the sources below a root, with their versions, documents and attribute sets.",
    ),
    Verb(
        "schema",
        "dolma_dask.questions.schema:schema",
        "List the fields of documents, their kinds, and how often they are null.",
    ),
    Verb(
        "show-tokenizer",
        "dolma_dask.questions.show_tokenizer:show_tokenizer",
        "Tell what a tokenizer is, what ends documents, and how many bytes its tokens hold.",
    ),
    Verb(
        "what-if",
        "dolma_dask.questions.what_if.question:what_if",
        "Tell which rule of some thresholds drops what, and what a stricter level would cost.",
    ),
    Verb(
        "histogram",
        "dolma_dask.questions.histogram:histogram",
        "Count the values of a signal in bins, and draw them.",
    ),
    Verb(
        "stat",
        "dolma_dask.questions.stat:stat",
        "Count the scores and lengths of attributes, as the Dolma toolkit's stat does, with quantiles.",
    ),
    Verb(
        "word-buckets",
        "dolma_dask.questions.word_buckets:word_buckets",
        "Count hashed words of a dataset, for the tagger importance.",
    ),
    Verb(
        "rule-overlap",
        "dolma_dask.questions.rule_overlap:rule_overlap",
        "Tell which conditions of a rule drop the same documents.",
    ),
    Verb(
        "lengths",
        "dolma_dask.questions.lengths:lengths",
        "Count the tokens of documents, and what sequence lengths waste.",
    ),
    Verb(
        "show-cluster",
        "dolma_dask.questions.cluster_members:show_cluster",
        "Show documents that are similar to one, and how they differ.",
    ),
    Verb(
        "trace",
        "dolma_dask.questions.tracing.trace:trace",
        "Tell which documents a row of a token file is made of.",
    ),
    Verb(
        "find",
        "dolma_dask.questions.tracing.find:find",
        "Find every place of a document below some roots, by its id.",
    ),
    Verb(
        "explain",
        "dolma_dask.questions.tracing.explain:explain",
        "Explain a document: its signals, the rules that kept or dropped it, its cluster, its places.",
    ),
    Verb(
        "cluster script",
        "dolma_dask.questions.cluster.verb:cluster_script",
        "Print the job script of a cluster profile, as it would be submitted.",
    ),
    Verb(
        "cluster check",
        "dolma_dask.questions.cluster.verb:cluster_check",
        "Try a cluster profile with one small job, and say what to change.",
    ),
    Verb(
        "list",
        "dolma_dask.questions.taggers:show_taggers",
        "List the taggers, built in and from plug-ins, or the attributes of one; or tell what a tokenizer is.",
    ),
    Verb(
        "demo",
        "dolma_dask.pipelines.demonstration:demo",
        "Do all of this on text from this Python installation.",
    ),
    Verb(
        "warm-up", "dolma_dask.pipelines.warming:warm_up", "Compile all kernels now, once for all later runs."
    ),
)
"""All commands: verbs, then questions and what runs verbs."""


IN_PYTHON_ALONE = {"write_documents": "documents", "write_attributes": ""}
"""Writers without a command that have a journal of their own, and what they make."""

TOOLKIT = ("tag", "dedupe", "mix", "tokens", "list", "stat", "warc", "reshard")
"""Commands of the Dolma toolkit, which are taken with their own options and files."""

GROUPS = {"cluster": "Show what a cluster profile submits, and whether it works."}
"""First words of the commands that have two, and their help."""


def name_in(words: Sequence[str]) -> str | None:
    """Return the name of the command that words call: the first, or the first two."""
    for number, word in enumerate(words):
        pair = " ".join([word, *words[number + 1 : number + 2]])
        if pair in COMMANDS or word in COMMANDS:
            return pair if pair in COMMANDS else word
    return None


def names_of(makes: str) -> tuple[str, ...]:
    """Return the names of the verbs, and of writers without a command, that make something of a kind."""
    commands = tuple(verb.name for verb in VERBS.values() if verb.makes == makes)
    return commands + tuple(name for name, made in IN_PYTHON_ALONE.items() if made == makes)
