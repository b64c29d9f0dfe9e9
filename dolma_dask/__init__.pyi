"""Public names with their types and docstrings. Made by tools/stubs.py of the options of commands; do not edit."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal

from dask.delayed import Delayed

from dolma_dask.clusters import cluster as cluster
from dolma_dask.dataset import Dataset as Dataset
from dolma_dask.dataset import open_dataset as open_dataset
from dolma_dask.figures.figure import Figure as Figure
from dolma_dask.frames.dataframe import read_bag as read_bag
from dolma_dask.frames.dataframe import read_dataframe as read_dataframe
from dolma_dask.frames.table import read_table as read_table
from dolma_dask.loaders.ragged import open_ragged as open_ragged
from dolma_dask.loaders.token_dataset import TokenDataset as TokenDataset
from dolma_dask.loaders.torch_tokens import torch_dataset as torch_dataset
from dolma_dask.outputs.hdf5.job import Hdf5Summary
from dolma_dask.outputs.hdf5.modes.dpo import DpoOptions as DpoOptions
from dolma_dask.outputs.hdf5.modes.fim import FimOptions as FimOptions
from dolma_dask.outputs.hdf5.modes.lm import LmOptions as LmOptions
from dolma_dask.outputs.hdf5.modes.lm_vsl import LmVslOptions as LmVslOptions
from dolma_dask.outputs.hdf5.modes.summarization import SummarizationOptions as SummarizationOptions
from dolma_dask.outputs.hdf5.modes.summarization import SummarizationVslOptions as SummarizationVslOptions
from dolma_dask.outputs.hdf5.raw import RawTexts
from dolma_dask.pipelines.demonstration import demo_corpus as demo_corpus
from dolma_dask.pipelines.estimate.answer import Estimate
from dolma_dask.pipelines.opened_pipeline import pipeline as pipeline
from dolma_dask.pipelines.pipeline import PipelineSummary
from dolma_dask.questions.cluster.findings import ClusterReport
from dolma_dask.questions.cluster_members import ClusterView
from dolma_dask.questions.lengths import Lengths
from dolma_dask.questions.look.question import Look
from dolma_dask.questions.schema import Schema
from dolma_dask.questions.show_tokenizer import TokenizerAnswer
from dolma_dask.questions.stat import Stat
from dolma_dask.questions.status.question import StatusSummary
from dolma_dask.questions.tracing.explain import Explained
from dolma_dask.questions.tracing.places import Found
from dolma_dask.questions.tracing.trace import Traced
from dolma_dask.questions.versions import Versions
from dolma_dask.questions.what_if.answer import WhatIf
from dolma_dask.questions.word_buckets import WordBuckets
from dolma_dask.reading.quantiles import QuantilesSummary
from dolma_dask.reading.thresholds import read_thresholds as read_thresholds
from dolma_dask.reading.thresholds import thresholds as thresholds
from dolma_dask.results.summary import Summary as Summary
from dolma_dask.rules.replacements import Replacement
from dolma_dask.rules.rules import Rule
from dolma_dask.rules.rules import duplicates as duplicates
from dolma_dask.rules.rules import listed as listed
from dolma_dask.rules.thresholds import Thresholds
from dolma_dask.taggers.base import Tagger
from dolma_dask.taggers.registry import get_tagger as get_tagger
from dolma_dask.taggers.registry import list_taggers as list_taggers
from dolma_dask.taggers.registry import tagger as tagger
from dolma_dask.verbs.block.summary import BlockSummary
from dolma_dask.verbs.dedupe.summary import DedupeSummary
from dolma_dask.verbs.filter.summary import FilterSummary
from dolma_dask.verbs.mix.call import MixSummary
from dolma_dask.verbs.remove.summary import Removal
from dolma_dask.verbs.validate.summary import ValidateSummary

__version__: str
__all__: list[str]

def attach(
    dataset: str | Dataset | Summary,
    tables: str,
    /,
    *,
    name: str,
    missing: Literal["fail", "null"] = "fail",
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Make attributes of what RedPajama-V2 publishes beside its documents: quality signals, or flags of duplicates.

    Example: dolma-dask attach corpus/rpv2/v0 raw/quality_signals --name rps

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it, whose ids are those of RedPajama-V2 (convert --mapping redpajama_v2 makes them).
    tables : str
        Folder or URL of quality_signals or duplicates, in folders as the shards below documents/:
        <snapshot>/<shard>/<lang>_<bucket>.signals.json.gz or .duplicates.parquet.
    name : str
        Attribute set to write. Signals keep their names; a flag is named as the set: mix --where "NAME is None" keeps the others.
    missing : {"fail", "null"}
        A shard without a table fails, or its documents get no values; such shards are counted.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary
        Its counts tell documents without a row in their table, and rows without a document.

    Raises
    ------
    StageError
        Some shards failed: a table is missing, damaged, of another shard or not in order, or ids are others.
    UsageError
        There are no such tables, or the set holds something else; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Rows and documents meet by the number at the end of their ids. Values stay as they are published, byte for byte in JSON lines; a score that is
    null is a missing value.
    """

def block(
    dataset: str | Dataset | Summary,
    list_file: str,
    /,
    *,
    name: str | None = None,
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] | None = None,
    exchange: bool | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    allow_unmatched: bool = False,
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> BlockSummary:
    """Flag the documents that are in a list of ids, or of sources and ids, and write the flags beside the documents.

    Example: dolma-dask block corpus/wiki/v0 takedown.txt --name takedown

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    list_file : str
        A file with an id per line, or source, tab and id; .jsonl with "id" and perhaps "source"; .csv, .tsv or .parquet with a column id and
        perhaps source, or without such a heading an id, or source and id, in each row; each also .gz or .zst. An id without source stands for
        that id in every source.
    name : str, optional
        Attribute set to write, and its only key; by default the name of the file without its suffix.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    exchange : bool, optional
        Sort the list together with all documents on disk, instead of holding it in memory; by default only for more than five million entries.
        Not a byte of the output depends on it.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    allow_unmatched : bool, optional
        Take a list of which no document has an entry, or that is empty. Otherwise that is an error, since such a list is mostly another one
        than was meant, or has its ids in another form than the documents.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    BlockSummary
        Listed documents, and the entries of the list that no document has.

    Raises
    ------
    StageError
        Some shards failed.
    DataError
        No document has an entry of the list, or it is empty; no flags of it are left.
    BadRecordError, CorruptFileError, SchemaError
        The list cannot be read; the message names the line.
    UsageError
        An argument is unknown or has a value that it cannot have, or there is an attribute set of this name that block did not make.

    Notes
    -----
    A listed document has [[0, length, 1]] under the key, in code points, others have nothing. To drop listed documents:
    mix --where "takedown is None"; to keep them alone: mix --where "takedown is not None". When the list has changed, flags of the old
    one are refused by all readers from the start of the run that makes the new ones, and the new ones until it has ended well; after a run with `only` or `prune`, those of the other
    shards are, until block has run over all. All entries that match nothing are in
    _quarantine/block/<name>.unmatched.jsonl. With on_bad_record="quarantine" every bad record keeps its row, with an error in it;
    more of them than `max_bad_fraction` allows make the exit status 1.
    """

def cluster_check(profile: str, /, *, folder: str = ".") -> ClusterReport:
    """Try a cluster profile with one small job, and say what to change; the job is cancelled in any case.

    Example: dolma-dask cluster check laptop --folder corpus

    Parameters
    ----------
    profile : str
        slurm, lumi, allocation, laptop, or a YAML file with a profile.
    folder : str
        Where your data is, on storage that workers should see; a file is written there, read from the other side, and removed.

    Returns
    -------
    ClusterReport
        Versions, memory, scratch, clocks and the shared folder as this side and a worker see them.

    Raises
    ------
    UsageError
        The profile is wrong, or SLURM takes no such job.
    ClusterError
        The job ends before its worker has come; with the end of its log.
    """

def cluster_script(profile: str, /) -> str:
    """Print the job script of a cluster profile, as it would be submitted for each of its jobs.

    Example: dolma-dask cluster script slurm

    Parameters
    ----------
    profile : str
        slurm, lumi, or a YAML file with a profile.

    Returns
    -------
    str
        The script; the address of the scheduler and the name of the job are known when they run.

    Raises
    ------
    UsageError
        The profile is wrong, or submits no jobs.
    """

def convert(
    inputs: Sequence[str] | str,
    /,
    *,
    to: str,
    mapping: str = "dolma",
    id: str | None = None,
    text: str | None = None,
    source_field: str | None = None,
    added: str | None = None,
    created: str | None = None,
    source: str | None = None,
    metadata: Sequence[str] | None = None,
    generated_id: str | None = None,
    function: str | Callable[..., Any] | None = None,
    encoding: str | None = None,
    store_html: bool = False,
    extractor: Literal["resiliparse", "trafilatura"] = "resiliparse",
    under: str | None = None,
    shard_bytes: int | None = None,
    combine: Literal["language", "bucket"] | None = None,
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] = "jsonl.gz",
    attributes: str | None = None,
    form: Literal["nested", "flat"] = "nested",
    rename: str | None = None,
    pre_taggers: Sequence[str | Tagger | Callable[..., Any]]
    | str
    | Tagger
    | Callable[..., Any]
    | None = None,
    pre_skip: bool = False,
    post_taggers: Sequence[str | Tagger | Callable[..., Any]]
    | str
    | Tagger
    | Callable[..., Any]
    | None = None,
    post_skip: bool = False,
    artifacts: str | None = None,
    tagger_modules: Sequence[str] | str | None = None,
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
    skip: Sequence[str] = (),
) -> Summary:
    """Turn raw files into documents: JSON lines, Parquet, CSV, text, web pages, WARC, mail, and tars of them; files, folders and globs.

    Example: dolma-dask convert raw/c4 --to corpus/c4/v0 --mapping c4

    To see what a folder holds, and the command that converts it: dolma-dask look raw

    Parameters
    ----------
    inputs : list of str
        Files, folders or globs, local or URLs.
    to : str
        Root of the dataset; its documents/ is written.
    mapping : str
        Field names of published data: dolma, c4, fineweb, pile, redpajama_v1, redpajama_v2, refinedweb, slimpajama, wikipedia. Signals, MinHash
        and duplicates of redpajama_v2 among the inputs are left out, and its ids are the published ones.
    id : str, optional
        Field that becomes the id; a dot goes into objects (meta.id). Records without an id get one from file and row.
    text : str, optional
        Field that becomes the text; a dot goes into objects (content.body). Text files are taken as they are, with their paths as ids.
    source_field : str, optional
        Field that holds the source.
    added : str, optional
        Field that becomes the time stamp added.
    created : str, optional
        Field that becomes the time stamp created.
    source : str, optional
        Source of all records, or of those without the field.
    metadata : list of str, optional
        Further fields to keep under metadata; by default all, byte for byte.
    generated_id : str, optional
        Pattern of the ids of records without one, over {path} and {stem} (below the input folder), {place} (the file and two folders above it)
        and {row}; default "{stem}-{row:08d}". With `under`, that folder stands before it, so that ids of different sources differ; not with
        {place}.
    function : str, optional
        A function of yours in place of a mapping, file.py:name or module:name. From Python also the function itself. It gets each record as a
        dict, the JSON object or a table's row (of a text file id, text and path), and returns a document, a dict with text and whatever else it
        should hold, several in a list, or nothing. From the second document of a record on, generated ids end in -1, -2 and so on.
    encoding : auto or an encoding, optional
        Encoding of text and JSON lines, such as latin-1 or utf-16; auto guesses it of each file that is not UTF-8 (names and accents among
        ASCII are taken for windows-1252). metadata.encoding names the encoding of what is not UTF-8. By default only UTF-8 is accepted.
    store_html : bool, optional
        Keep the HTML of each web page in metadata.html, as taggers of licences (cc_re) read it.
    extractor : {"resiliparse", "trafilatura"}
        Package that finds the main text of web pages; each is an extra of its own.
    under : str, optional
        Folder below documents/ to write to, so that several sources can be converted into one dataset; no other convert removes what lies
        there.
    shard_bytes : int, optional
        Approximate bytes of JSON per output shard; by default one shard per input file. With `combine`, stored bytes of the input files of a
        shard; by default 1,000,000,000.
    combine : {"language", "bucket"}, optional
        Put the files of each language, or of each language and bucket, of redpajama_v2 together: shards such as en/00000.jsonl.gz or
        en_head/00000.jsonl.gz, each of neighbouring whole files. Few files are made of many, for file systems that count them.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}
        Format of the documents.
    attributes : str, optional
        Instead of raw files, convert this attribute set of the dataset `inputs`; `to` is the same dataset.
    form : {"nested", "flat"}
        Form of the converted attributes: that of the Dolma toolkit, or keys at the top level.
    rename : str, optional
        Name of the converted attribute set; default: the old name with the form behind it.
    pre_taggers : list of str, optional
        Taggers that look at each page of a WARC file before its text is found (metadata.html, metadata.url), such as cc_re. Their attributes
        are written into the document.
    pre_skip : bool, optional
        Leave out pages in which `pre_taggers` find nothing; their text is not extracted.
    post_taggers : list of str, optional
        Taggers that look at the text of each record of a WARC or WET file, and at its page. Their attributes are written into the document.
    post_skip : bool, optional
        Leave out documents in which `post_taggers` find nothing.
    artifacts : str, optional
        Folder with files that taggers use: lists of words, domains and addresses, models. dolma-dask list NAME shows which files a tagger uses,
        and their names.
    tagger_modules : list of str, optional
        Python files, or modules, with taggers written for the Dolma toolkit (@add_tagger classes), which are then known by their names.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some files failed, or are of no known kind and not named in `skip`.
    BadRecordBudgetError
        More records are bad than `max_bad_fraction` allows; other verbs refuse the dataset until it is mended.
    UsageError
        No file of a known kind was found; the function cannot be used; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Members of tar archives that are no files, such as links, and hidden ones are skipped, counted and named in a note.
    """

def dedupe(
    dataset: str | Dataset | Summary,
    /,
    *,
    how: Literal["exact", "fuzzy"] = "exact",
    by: str = "text",
    keep: Literal["first", "longest", "newest", "oldest", "highest", "lowest"] = "first",
    rank: str | None = None,
    where: str | Rule | None = None,
    within: str | None = None,
    similarity: float | None = None,
    verify: Literal["signatures", "ngrams", "none"] | None = None,
    num_bands: int | None = None,
    rows_per_band: int | None = None,
    ngram: int | None = None,
    unit: Literal["document", "paragraph", "word", "char"] | None = None,
    num_perm: int | None = None,
    seed: int | None = None,
    scheme: Literal["dolma_dask", "datasketch", "datasketch_legacy", "redpajama_v2"] | None = None,
    signatures: str | None = None,
    audit: bool = False,
    others: Sequence[str | Dataset | Summary] = (),
    index: str | None = None,
    name: str | None = None,
    key: str | None = None,
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] | None = None,
    attributes: Sequence[str] = (),
    shuffle: Literal["files", "dask"] = "files",
    merge_bytes: int | None = None,
    separator: str = "\n",
    skip_empty: bool = False,
    min_length: int = 0,
    min_words: int = 0,
    stride: int = 1,
    overlap: float = 1.0,
    skip_short: bool = False,
    min_copies: int | None = None,
    bloom: str | None = None,
    read_only: bool = False,
    bloom_bytes: int | None = None,
    bloom_keys: int | None = None,
    bloom_rate: float | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> DedupeSummary:
    """Flag every document but one of those that are equal or similar, over all shards, and write the flags beside the documents.

    Example: dolma-dask dedupe corpus/wiki/v0 --by text --keep longest

    Example: dolma-dask dedupe corpus/wiki/v0 --how fuzzy

    Example: dolma-dask dedupe corpus/wiki/v0 --how fuzzy --similarity 0.8 --keep longest --within source --name strict

    Example: dolma-dask dedupe corpus/wiki/v0 --others corpus/books/v0 corpus/news/v0

    Example: dolma-dask dedupe corpus/wiki/v0 --unit paragraph --min-length 20

    Example: dolma-dask dedupe corpus/news/v0 --index corpus/index

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    how : {"exact", "fuzzy"}
        Documents are duplicates if they are equal in `by`, or if their texts are similar: MinHash signatures of their n-grams share a band and,
        with `verify`, agree in enough values.
    by : str
        "text"; "id", which means source and id together; another field of documents; "metadata.<field>", at any depth ("metadata.page.hash");
        or an attribute key with one value per document (a unique ending is enough). A document without a value is nobody's duplicate. Integers
        are compared by all of their digits.
    keep : {"first", "longest", "newest", "oldest", "highest", "lowest"}
        Which document of a cluster survives: the first in the listing, that with the longest text, the newest or oldest, or that with the
        highest or lowest `rank`. Among equals the first in the listing survives; a document without rank comes behind those that have one.
    rank : str, optional
        An attribute key or a field of the documents or their metadata. For "highest" and "lowest" a number, compared in double precision. For
        "newest" and "oldest" a number or a time in ISO 8601 ("2024-05-01", "2024-05-01T12:30:59.5Z", "2024-05-01 12:30:59 +0200"; UTC where no
        zone is given), by default `created`; what is no time counts as missing.
    where : str, optional
        Only documents for which this rule holds take part, as in mix: the others are in no cluster, so that none of them survives in place of
        one that is kept, and they get no flag.
    within : str, optional
        An attribute key or a field of the documents or their metadata, with one value per document: documents with different values, of
        different languages for example, are not in one cluster, and those without a value in none.
    similarity : float, optional
        Jaccard similarity of n-grams from which documents are duplicates (fuzzy), from 0 to 1; by default 0.7, with scheme="redpajama_v2" 0.8.
        Higher is stricter: fewer are removed. Given, it decides the shape of the bands too, unless `num_bands` and `rows_per_band` do.
    verify : {"signatures", "ngrams", "none"}, optional
        Join documents that share a band only if their signatures say that they are as similar as `similarity` (the default); if their sets of
        n-grams are, which reads the texts twice more; or all of them (with scheme="redpajama_v2" the default), as RedPajama-V2 does (fuzzy).
    num_bands : int, optional
        Shape of the bands (fuzzy), both or none; by default 14 bands of 8 rows, or what fits `similarity`.
    rows_per_band : int, optional
        Shape of the bands (fuzzy), both or none; by default 14 bands of 8 rows, or what fits `similarity`.
    ngram : int, optional
        Tokens of an n-gram (fuzzy); by default 5, with scheme="redpajama_v2" 13. Words of an n-gram (unit="paragraph"), by the rules of Unicode
        and without white space; by default paragraphs are compared as they are.
    unit : {"document", "paragraph", "word", "char"}, optional
        What is compared: "document" (by default) or "paragraph", each by itself (exact). Or the tokens of n-grams (fuzzy): "word" (by default;
        in scripts without spaces, characters) or "char". Words of the other schemes are what stands between white space, in all scripts.
    num_perm : int, optional
        Values of a signature (fuzzy); by default 128.
    seed : int, optional
        Seed of the permutations (fuzzy); by default 42, with datasketch's schemes 1.
    scheme : {"dolma_dask", "datasketch", "datasketch_legacy", "redpajama_v2"}, optional
        How signatures are made (fuzzy); by default the fastest. The others give the bytes of these projects.
    signatures : str, optional
        Folder or URL of published MinHash tables, <snapshot>/<shard>/<lang>_<bucket>.minhash.parquet, from which signatures are taken instead
        of making them (fuzzy, scheme="redpajama_v2"). Rows are found by the ids of documents; one without a signature there is nobody's
        duplicate. Or a dataset that these documents come from, by a mix that shuffled them for example: its signatures are found by source and
        id, and only documents with none, or with a text of another length, are signed.
    audit : bool, optional
        Write nothing: plant copies of known similarities into a sample of the documents, find them with these options, and tell how many were
        found, beside how many should be (fuzzy). All documents may be in the sample, whatever `where` and `within` say. Needs the space of two
        thousand documents in the temporary folder.
    others : list of str or Dataset, optional
        Further datasets whose documents are compared with these and with each other; they come behind these in the listing, and each gets flags
        of its own. Flags hold while none of the datasets changes or is gone.
    index : str, optional
        Folder or URL of an index, which is made if it is not there: documents are compared with each other and with all that earlier calls have
        put into it, of which none loses to a new one; what is kept is appended. All datasets of an index are compared in the same way.
    name : str, optional
        Attribute set to write, and its key; by default "exact", "fuzzy" or "paragraphs".
    key : str, optional
        Key of the flags, and beginning of the others; by default the name of the set.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    attributes : list of str, optional
        Attribute sets to look for `by`, `rank`, `within` and the names in `where` in; by default all.
    shuffle : {"files", "dask"}
        How keys reach each other: through files beside the dataset, or through Dask's dataframe shuffle, for slow shared storage.
    merge_bytes : int, optional
        Bytes of memory that joining similar documents to clusters may take in one worker; by default half of what a worker has. Where it takes
        more, documents are joined range by range, by all workers, to the same clusters (fuzzy).
    separator : str
        What stands between paragraphs, of any length; by default a newline, for blank lines $'\\n\\n' in a shell.
    skip_empty : bool, optional
        Paragraphs, or documents by their value of `by`, with nothing but white space take no part.
    min_length : int, optional
        Shorter paragraphs, or values of documents, take no part; in characters (code points).
    min_words : int, optional
        Paragraphs, or values of documents, of fewer words take no part; words by the rules of Unicode, signs included, white space left out.
    stride : int
        With `ngram`: words from one n-gram to the next, behind the first two, which always count.
    overlap : float
        With `ngram`: share of the n-grams of a paragraph that are there before, from which it is flagged, with this share as its score. 0 flags
        all that are compared. An n-gram that the paragraph itself has had is there before too, so that one that repeats itself may be flagged
        as the only copy of its text.
    skip_short : bool, optional
        With `ngram`: paragraphs of fewer words take no part, and those with one n-gram are compared by it; else all with fewer than two n-grams
        are compared with each other as they are.
    min_copies : int, optional
        Flag only what occurs in at least so many different documents, and then all of it, the first included: menus, cookie notes and other
        boilerplate. By default all but the first of equal paragraphs are flagged.
    bloom : str, optional
        File or URL of a Bloom filter to write, of the keys of all documents or paragraphs that were compared, one of each kept: what is in it
        was here. Flags are exact, they do not come from it.
    read_only : bool, optional
        Flag what is in the filter, and leave it as it is: what an earlier crawl had, or the documents of a benchmark. Documents here are not
        compared with each other.
    bloom_bytes : int, optional
        Size of the filter, rounded down to half a mebibyte or more.
    bloom_keys : int, optional
        Keys that the filter is made for; by default as many as there are, equal ones counted each.
    bloom_rate : float, optional
        Share of other keys that the filter may find wrongly; by default 0.000001. It decides the size with `bloom_keys`.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    DedupeSummary
        Documents, duplicates and clusters, by source, and the largest clusters.

    Raises
    ------
    StageError
        Some shards failed.
    ExpressionError
        There is no such column.
    UsageError
        An argument is unknown or has a value that it cannot have, or there is an attribute set of this name that dedupe did not make.

    Notes
    -----
    A survivor has nothing under the key, the others have [[0, length, 1]] in code points: mix keeps survivors, and documents without duplicates, with
    --where "exact is None" or "fuzzy is None". Nothing is removed before. A run with other options replaces flags of the same --name.
    With unit="paragraph" the key has a span for each duplicate paragraph, and <name>__share, by default paragraphs__share, is the share of the text's characters in
    them: mix cuts the spans out with --replace '{"span": "$.attributes.paragraphs", "min_score": 1, "replacement": ""}', or drops documents with
    --where "paragraphs__share < 0.5". With --min-text-length 1 it drops what has no text left.
    Members of clusters of similar documents have fuzzy__cluster_size too, and where pairs are verified fuzzy__similarity: to the nearest member that
    each was compared with.
    `only` and `share` name the shards whose documents are compared, for rounds of growing parts: all others are kept, and the next round goes on with
    --where "r1 is None" under a name of its own. `prune` is for a rehearsal (`dry_run`) or an `audit`.
    If mix asks for both, choose near duplicates with --where "exact is None", or survivors of one may be flagged in the other.
    With on_bad_record="quarantine" every bad record keeps its row, with an error in it; more of them than `max_bad_fraction` allows make the exit status 1.
    """

def demo(
    *,
    folder: str = "demo",
    report: str = "reports/demo.html",
    scheduler: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> PipelineSummary:
    """Do the whole job on text from this Python installation: package descriptions, licences, docstrings.

    Example: dolma-dask demo

    Parameters
    ----------
    folder : str
        Where the data goes.
    report : str
        The page to write.
    scheduler : str, optional
        auto, synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    progress : bool, optional
        Show a progress bar for each stage.

    Returns
    -------
    PipelineSummary
        Documents, text and tokens per stage; its notes say where to look.

    Raises
    ------
    StageError
        A stage failed.
    DataError
        The tokens that were read back are not those of the documents.
    """

def download(
    inputs: Sequence[str] | str,
    /,
    *,
    to: str,
    snapshots: Sequence[str] = (),
    languages: Sequence[str] = (),
    buckets: Sequence[str] = (),
    components: Sequence[str] = (),
    base: str | None = None,
    connections: int = 8,
    on_missing: Literal["record", "fail"] = "record",
    on_broken: Literal["record", "fail"] = "fail",
    refresh: bool = False,
    redirects_to: Sequence[str] = (),
    timeout: float = 30.0,
    patience: float = 300.0,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Fetch published files over http(s) or from any store: each is whole, proved, and goes on where it broke off.

    Example: dolma-dask download urls/minhash-urls.txt --to raw/rpv2 --snapshots 2023-06 --languages de

    Parameters
    ----------
    inputs : list of str
        Lists of URLs (.txt); trees as RedPajama-V2 publishes them, https://data.together.xyz/redpajama-data-v2/v1.0.0, which have listings (in
        a store they need none); listings of such trees; or URLs of files.
    to : str
        Folder or URL to write to. Files keep the paths that they are published under: documents/2023-06/0000/de_head.json.gz.
    snapshots : list of str, optional
        Snapshots of RedPajama-V2, such as 2023-06; in the web they must be given.
    languages : list of str, optional
        Languages: de, en, es, fr, it; by default all.
    buckets : list of str, optional
        Buckets of quality: head, middle, tail; by default of a listing head and middle, of a list of URLs all.
    components : list of str, optional
        Components: documents, quality_signals, minhash, duplicates; by default all.
    base : str, optional
        URL that other files keep their paths below, and that the shards of a listing of yours lie below.
    connections : int
        Connections at once to one host, and files at once.
    on_missing : {"record", "fail"}
        What to do where the source has no such file (404): list it, or fail.
    on_broken : {"record", "fail"}
        The same for files that are damaged at the source.
    refresh : bool, optional
        Ask the source about every file, and fetch what has changed there; by default what was fetched stays.
    redirects_to : list of str, optional
        Other hosts that may send the files when their server redirects to them, such as cdn.example.org or '*.example.org'; '*': any. One with
        a private address has to be named in full.
    timeout : float
        Seconds without a byte after which a connection is made anew.
    patience : float
        Seconds without an answer after which a host is given up.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some files could not be fetched; all others are there.
    StoreUnreachableError
        A host does not answer any more. The same command goes on later.
    DiskFullError
        The files do not fit; nothing was fetched.
    UsageError
        Nothing is selected, or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Files that are missing or broken at the source are listed below _quarantine/download/ of the target. gzip and zstd data are inflated to their ends, and footers of Parquet
    files are read. A login is taken from ~/.netrc; a URL that holds one is refused, and queries of URLs are shown nowhere.
    """

def estimate(
    path: str,
    /,
    *,
    variables: Mapping[str, object] | Sequence[str] = (),
    only: Sequence[str] = (),
    workers: Sequence[int] = (),
    sample_bytes: int = 20000000,
    scan_bytes: int = 1000000000,
    seed: int = 0,
    scratch: str | None = None,
    progress: bool | None = None,
) -> Estimate:
    """Tell what a pipeline will cost: CPU-hours, wall time, memory, disk, files and a request to SLURM, from a small sample.

    Example: dolma-dask estimate configs/wiki.yaml --set raw=dumps/wiki tokenizer=t5.json --workers 8 64

    Parameters
    ----------
    path : str
        The file of the pipeline, as `run` takes it.
    variables : list of NAME=VALUE, optional
        Values for ${NAME} in the file. In Python a map.
    only : list of str, optional
        Only these stages, by name or by verb.
    workers : list of int, optional
        Numbers of workers to tell the wall time for; by default 1, 2, 4 and so on.
    sample_bytes : int
        Bytes of records to try the stages on.
    scan_bytes : int
        Stored bytes to read at most, to learn how many documents are copies of others.
    seed : int, optional
        Decides which records are drawn.
    scratch : str, optional
        Folder for the sample and what is made of it, removed at the end; by default that of temporary files.
    progress : bool, optional
        Show a progress bar.

    Returns
    -------
    Estimate
        A row per stage and in all. It is kept in the journal folders of what the pipeline writes, so that `status` can compare.

    Raises
    ------
    UsageError
        The file is wrong, or there is nothing to draw a sample from.
    TrialError
        A stage failed on the sample, as it would in the real run.

    Notes
    -----
    It speaks of the whole pipeline, also of stages that are done already. Downloads are left out. `downsample` to a number of documents and `only` of a
    stage do not shrink with a sample; their stages cost less than it says.
    """

def explain(
    id: str,
    dataset: str | Dataset | Summary,
    /,
    *,
    of_source: str | None = None,
    root: str | None = None,
    exact: bool = False,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    overwrite: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Explained:
    """Explain a document: its signals among those of all documents, the rules that kept or dropped it, its cluster, and every place where it is.

    Example: dolma-dask explain 7 corpus/wiki/v0

    What is not there, such as signals or clusters, is told in a note.

    Parameters
    ----------
    id : str
        Id of a document.
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    of_source : str, optional
        Source of the document, where several sources have this id.
    root : str, optional
        Where versions and token files are looked for; by default in the folder of the dataset and in those beside it.
    exact : bool, optional
        Count the documents below each value, though quantiles.json tells about where it lies.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    overwrite : bool, optional
        Read the ids of all files again, whatever the index in the user's cache says.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Explained

    Raises
    ------
    UsageError
        There is no such document, or several sources have the id.

    Examples
    --------
    >>> dk.explain("7", "corpus/v0").signals[0].quantile  # doctest: +SKIP
    """

def filter(
    dataset: str | Dataset | Summary,
    /,
    thresholds: Sequence[str | Thresholds] | str | Thresholds | QuantilesSummary | None = None,
    *,
    quantiles: str | None = None,
    tails: Mapping[str, str] | Sequence[str] = (),
    nulls: Literal["drop", "keep", "fail"] | None = None,
    name: str = "quality",
    attributes: Sequence[str] = (),
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> FilterSummary:
    """Write how many levels of thresholds each document passes, in each rule, beside the documents.

    Example: dolma-dask filter corpus/wiki/v0 --quantiles quantiles --name quality

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    thresholds : list of str, optional
        Files of thresholds (quantiles --level), one for each level from the loosest to the strictest. From Python also thresholds, or what
        quantiles returned.
    quantiles : str, optional
        Quantiles in place of thresholds: the name of quantiles of the dataset, or a file of quantiles; all four levels are taken of them:
        regular, strict, even_stricter and strictest. By default "quantiles".
    tails : list of str, optional
        Ends of the distribution of a signal that are cut, as NAME=lower, NAME=upper or NAME=both, or {name: tail}; by default as for quantiles.
    nulls : {"drop", "keep", "fail"}, optional
        A document without a value of a signal passes no level of its rule, all levels of its group, or is an error; by default as the
        thresholds say, of quantiles none.
    name : str
        Attribute set to write.
    attributes : list of str, optional
        Attribute sets to look for signals in; by default all.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    FilterSummary
        With the documents that each rule keeps at each level, and all rules together, by group.

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        There are no such thresholds, or a signal of theirs is missing; bounds of a level are not inside of those before; or an argument is unknown, or has
        a value that it cannot have.

    Notes
    -----
    Readers see a column NAME.SIGNAL for each signal, from 0 to 4 (1: it passes regular, 4: strictest too), and NAME.level, the least of all rules:
    mix --where "quality.level >= 2 and quality.perplexity >= 3". Bounds are inclusive. When signals are made again, the levels made before are
    refused by readers until filter has run; quantiles that are made again change no level before that.
    """

def find(
    id: str | tuple[str, ...],
    roots: Sequence[str] | str = (),
    /,
    *,
    source: str | None = None,
    also: Sequence[str] = (),
    ids: str | None = None,
    overwrite: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Found:
    """Find every place of a document below some roots: versions, attributes, token files, clusters, lists of what was dropped or set aside.

    Example: dolma-dask find 7 corpus

    The first call reads the ids of all files once; an index in the user's cache folder answers later ones in milliseconds, and reads again only files that have changed.

    Parameters
    ----------
    id : str or tuple of str
        Id of a document. In Python also several.
    roots : list of str, optional
        Folders or URLs: datasets, token files, or roots with such in them.
    source : str, optional
        Only documents of this source, and those that name none.
    also : list of str, optional
        Further ids.
    ids : str, optional
        A list of ids, or of sources and ids: text, JSON lines, CSV, TSV or Parquet, as block takes it. With it, a single word is the root.
    overwrite : bool, optional
        Read the ids of all files again, whatever the index in the user's cache says.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Found
        Its exit status is 1 if an id is nowhere.

    Raises
    ------
    UsageError
        Nothing with ids is below the roots.
    StageError
        A file cannot be read.

    Examples
    --------
    >>> found = dk.find("enwiki-17", "corpus")  # doctest: +SKIP
    >>> found.ids[0].tokens  # doctest: +SKIP
    """

def hdf5(
    dataset: str | Dataset | Summary | RawTexts,
    to: str,
    /,
    *,
    mode: str = "LMData",
    fim_rate: float = 0.9,
    spm_rate: float = 0.5,
    fim_prefix_tok: str | None = None,
    fim_middle_tok: str | None = None,
    fim_suffix_tok: str | None = None,
    tail: Literal["pad", "drop"] = "pad",
    pack_sequences: bool = True,
    fold_long_doc: bool = True,
    short_seq_prob: float = 0.0,
    split_text_to_tokenize: bool = False,
    chunk_len_to_split: int = 2000,
    remove_bos_in_chunks: bool = False,
    eos_after_prompt: bool = False,
    completion_key: str | None = None,
    multi_turn_key: str | None = None,
    multi_turn_content_key: str | None = None,
    prompt_prefix: str | None = None,
    completion_prefix: str | None = None,
    sep_token: str | None = None,
    chosen_key: str | None = None,
    rejected_key: str | None = None,
    user_role: str = "user",
    assistant_role: str = "assistant",
    chat_template: str | None = None,
    response_delimiter: str | None = None,
    max_prompt_length: int = 512,
    prompt_key: str | None = None,
    min_sequence_len: int | None = None,
    inverted_mask: bool = False,
    packing: Literal["best_fit", "modelzoo", "next_fit", "spfhp", "lpfhp"] | None = None,
    max_sequences_per_row: int | None = None,
    max_chunk_size: int = 1024,
    tokenizer: str,
    max_seq_length: int = 2048,
    eos: str | None = None,
    pad: str | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    seed: int = 0,
    use_ftfy: bool | None = None,
    ftfy_normalizer: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = "NFC",
    wikitext_detokenize: bool = False,
    shuffle: bool = False,
    shuffle_seed: int = 0,
    max_rows_per_file: int = 50000,
    compat: Literal["modelzoo-2.2"] | None = None,
    special_tokens_in_text: Literal["text", "encode", "refuse"] | None = None,
    engine: Literal["auto", "tokenizers", "fastokens"] = "auto",
    where: str | Rule | None = None,
    attributes: Sequence[str] = (),
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Hdf5Summary:
    """Pack documents into rows of tokens for training: part-<n>-<i>.h5 with ids, loss mask and labels, and data_params.json.

    Example: dolma-dask hdf5 corpus/wiki/v1 out/h5 --tokenizer neox.json --max-seq-length 2048

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    to : str
        Output folder or URL.
    mode : str
        LMData: documents as one stream of tokens, each predicted from those before it. LMData_VSL: documents side by side in rows, each seeing
        itself alone. FIM: LMData with parts of documents in another order, so that a model learns to fill in the middle. Summarization: prompts
        with their completions, which alone are predicted, each pair in a row of its own. Summarization_VSL: prompts with their completions, or
        whole dialogues, side by side in rows, each seeing itself alone. DPO: prompts with an answer that people chose and one that they
        rejected.
    fim_rate : float
        Share of the documents, or their pieces in a row, that are permuted.
    spm_rate : float
        Share of these in the order suffix, prefix, middle; the others: prefix, suffix, middle.
    fim_prefix_tok : str, optional
        Token before the prefix; needed, as the next two.
    fim_middle_tok : str, optional
        Token before the middle.
    fim_suffix_tok : str, optional
        Token before the suffix.
    tail : {"pad", "drop"}
        What happens to the last tokens, which fill no row: one more row with padding, or nothing.
    pack_sequences : bool
        Rows go on from document to document; else every document begins a row, and its last row is padded.
    fold_long_doc : bool
        Documents that are longer than a row are cut into several sequences; else they are left out.
    short_seq_prob : float, optional
        Share of rows (LMData_VSL: of documents) that are cut at random, 2 to `max_seq_length` - 1 tokens being left; the others are lost.
    split_text_to_tokenize : bool, optional
        Cut texts before they are tokenized, for tokenizers that are slow on long texts.
    chunk_len_to_split : int
        Characters after which the next space begins a piece.
    remove_bos_in_chunks : bool, optional
        Special tokens that the tokenizer adds stand around a document, not around each of its pieces.
    eos_after_prompt : bool, optional
        The token that ends a document stands behind each prompt too.
    completion_key : str, optional
        Field of the completion.
    multi_turn_key : str, optional
        Field of a dialogue, in place of both: a list, prompts and completions in turn.
    multi_turn_content_key : str, optional
        Field of the text in each item of a dialogue; by default items are texts.
    prompt_prefix : str, optional
        Words before each prompt, such as <|user|>; special tokens in them are meant.
    completion_prefix : str, optional
        Words before each completion; they are not predicted.
    sep_token : str, optional
        Token between prompt and completion; one that the vocabulary lacks is added to it.
    chosen_key : str, optional
        Field of the answer that was chosen, a text or a list of messages; by default chosen.
    rejected_key : str, optional
        Field of the answer that was rejected; by default rejected.
    user_role : str
        Name of the asking role.
    assistant_role : str
        Name of the answering role.
    chat_template : str, optional
        Jinja2 template of dialogues, or the path of a file that has it; by default that of the tokenizer, else [INST] prompt [/INST] answer.
    response_delimiter : str, optional
        Words of the template behind which the answer begins; by default found by the template.
    max_prompt_length : int
        Tokens that stay of a prompt, the last ones, where a record is longer than a row.
    prompt_key : str, optional
        Field of the prompt; with dots if it is inside of another: metadata.question. DPO can do without: the prompt is then what both dialogues
        begin with.
    min_sequence_len : int, optional
        Documents, or rows of a document by itself, of fewer tokens are left out; by default 10.
    inverted_mask : bool, optional
        The loss mask is 1 where nothing is predicted.
    packing : {"best_fit", "modelzoo", "next_fit", "spfhp", "lpfhp"}, optional
        How sequences are put together: best_fit (the default) wastes least; next_fit keeps their order; spfhp and lpfhp as published by
        Graphcore; modelzoo as that tool.
    max_sequences_per_row : int, optional
        Sequences that share a row at most; by default any number.
    max_chunk_size : int
        With packing="modelzoo": KiB of text whose sequences may share rows.
    tokenizer : str
        A tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub: EleutherAI/pythia-70m, with a revision behind
        @.
    max_seq_length : int
        Tokens of a row.
    eos : str, optional
        Token behind each document; by default the tokenizer's own. "none" for none.
    pad : str, optional
        Token that fills a row; by default the tokenizer's own, else that of `eos`.
    eos_id : int, optional
        Token behind each document, by its id.
    pad_id : int, optional
        Token that fills a row, by its id.
    seed : int, optional
        Seed of all that is drawn at random but the order of rows.
    use_ftfy : bool, optional
        Repair texts with ftfy first; by default not.
    ftfy_normalizer : {"NFC", "NFD", "NFKC", "NFKD"}
        Unicode normalization that ftfy ends with. In Python None for none.
    wikitext_detokenize : bool, optional
        Put the punctuation of wikitext together.
    shuffle : bool, optional
        Write the rows of all files in an order drawn by `shuffle_seed`.
    shuffle_seed : int, optional
        Seed of the order of rows; with `shuffle`.
    max_rows_per_file : int
        Files have at most so many rows, and nearly the same number.
    compat : {"modelzoo-2.2"}, optional
        Do as that release of ModelZoo where it differs from its documentation; see the notes.
    special_tokens_in_text : {"text", "encode", "refuse"}, optional
        Special tokens that a text spells out, such as <|endoftext|>: become its characters (text), control tokens (encode), or make it a bad
        record (refuse). By default text.
    engine : {"auto", "tokenizers", "fastokens"}
        Engine that makes the ids, which are the same: fastokens where it is installed (extra fast) and has proved equal for the tokenizer
        (auto), or tokenizers.
    where : str, optional
        Keep only documents for which this holds, as in mix, without writing them first.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Hdf5Summary

    Raises
    ------
    StageError
        Some shards could not be read, or some files not be written.
    UsageError
        The tokenizer cannot be read, or lacks a special token; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Rows do not depend on shards, files or workers. A stream of one token has nothing to predict and makes no row.

    Under compat="modelzoo-2.2" ftfy is on and `min_sequence_len` 6 by default, empty texts and records that lack a field are skipped, an `eos_id` is the
    padding too, `inverted_mask` does nothing to rows of texts, `remove_bos_in_chunks` drops a token of each further piece, short rows are drawn as by
    one process, and those of FIM as by one for each file, sequences are packed as there, and DPO predicts the mark before an answer too. The tail is kept
    all the same; ModelZoo loses it: tail="drop".

    Options of create_hdf5_dataset.py are taken behind the name of a mode; dolma-dask hdf5 DPO --help lists those of DPO.
    """

def histogram(
    dataset: str | Dataset | Summary,
    signal: str,
    /,
    *,
    where: str | Rule | None = None,
    attributes: Sequence[str] = (),
    by: Sequence[str] | str | None = None,
    log: bool | None = None,
    to: str | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Figure:
    """Count the values of a signal in bins: of all documents, of those that a rule keeps, and by group.

    Example: dolma-dask histogram corpus/wiki/v0 word_count --to words.svg

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    signal : str
        Attribute key (a unique ending is enough, set/ending for one of several sets), metadata.<field>, or a metric such as number_of_words,
        with one number per document.
    where : str, optional
        Rule, as in mix, or thresholds: what it keeps stands before all values, and its bounds of this signal are dashed lines.
    attributes : list of str, optional
        Attribute sets to look in; by default all.
    by : list of str, optional
        Column with a value for each group, or several, as in quantiles: a panel for each of the largest groups, with the same bins.
    log : bool, optional
        Space bins by powers of ten; by default where most values would share a few bins.
    to : str, optional
        Picture to write, ending in .png, .svg or .html.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Figure
        Shows itself in a notebook and prints as a table; ``frame()`` has its numbers, and ``save("words.png")`` writes PNG, SVG or HTML.

    Raises
    ------
    UsageError
        There is no such column, it has not one number per document, the rule cannot be read, or the shards together have more than 1,000 values of `by`.
    StageError
        Some shards could not be read, for example because attributes do not line up or one alone has more than 1,000 values of `by`.

    Notes
    -----
    Documents that could not be read are not counted. A document without a value is in no bin, and counts as kept or not like any other.

    Examples
    --------
    >>> words = dk.histogram("corpus/v0", "word_count", where="word_count >= 50", by="source")  # doctest: +SKIP
    >>> words.frame()[["panel", "from", "documents", "kept_documents"]]  # doctest: +SKIP
    """

def lengths(
    tokens: str | PathLike[str] | Summary,
    /,
    *,
    to: str | None = None,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Lengths:
    """Count how many tokens the documents of token shards have; only the lengths beside the tokens are read.

    Example: dolma-dask lengths out/ragged --to lengths.svg

    Parameters
    ----------
    tokens : str or Summary
        Local folder that ragged wrote, or one of its files.
    to : str, optional
        Picture to write, ending in .png, .svg or .html.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Lengths
        Prints as a table by folder of the documents; ``plot()`` is a histogram, and ``waste()`` tells what sequence lengths cost.

    Raises
    ------
    UsageError
        There are no ragged token shards. Rows of HDF5 files do not tell where documents begin and end: make token shards of the same documents
        with the same tokenizer by `ragged`.
    CorruptFileError
        A file is missing, truncated or damaged.

    Examples
    --------
    >>> found = dk.lengths("out/ragged")  # doctest: +SKIP
    >>> found.plot(seq_lengths=(2048,))  # doctest: +SKIP
    >>> found.waste((1024, 2048, 4096))  # doctest: +SKIP
    """

def look(inputs: Sequence[str] | str, /, *, to: str | None = None) -> Look:
    """Tell what raw files hold, and the command that converts them.

    Example: dolma-dask look raw

    A few records of a few files of each kind are read: it takes seconds, whatever the size of the folder.

    Parameters
    ----------
    inputs : list of str
        Raw files: files, folders or globs, local or URLs.
    to : str, optional
        Write it as a page of HTML too.

    Returns
    -------
    Look
    """

def mix(
    dataset: str | Dataset | Summary,
    /,
    *,
    to: str | None = None,
    ragged: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
    hdf5: str | Mapping[str, Any] | None = None,
    dropped: str | None = None,
    dropped_documents: bool = False,
    shuffle: bool = False,
    max_size: int | None = None,
    shards: int | None = None,
    name: str = "part",
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] | None = None,
    where: str | Rule | None = None,
    attributes: Sequence[str] = (),
    block: Sequence[str] = (),
    allow: Sequence[str] = (),
    thresholds: str | Rule | None = None,
    downsample: Mapping[str, float] | Sequence[str] | float | None = None,
    budget: Mapping[str, str | int] | Sequence[str] | None = None,
    tokens: str | int | None = None,
    max_epochs: int = 1,
    by: str | None = None,
    unit: str | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    allow_unmatched: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    syntax: Literal["jsonpath", "jq"] = "jsonpath",
    replace: Sequence[str | Mapping[str, Any] | Replacement] = (),
    merge_attributes: bool = False,
    discard_fields: Sequence[str] = (),
    min_text_length: int = 0,
    provenance: bool = False,
    sample: float | None = None,
    seed: int = 0,
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> MixSummary:
    """Write a new version of a dataset with the documents that rules and filters keep.

    Example: dolma-dask mix corpus/wiki/v0 --to corpus/wiki/v1 --where "word_count >= 50 and symbol_to_word_ratio < 0.1"

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    to : str, optional
        Root of the new version; its documents/ is written. Not needed if `ragged`, `hdf5` or `dropped` is given.
    ragged : dict or list of dict, optional
        Options of the verb ragged, to and tokenizer among them: token arrays of the new documents from the same reading, as JSON: '{"to":
        "out/ragged", "tokenizer": "t5.json", "eos": "</s>"}'; several, such as those of two formats, are encoded once. With `shuffle`,
        `max_size` or `shards` they are made of the new files.
    hdf5 : dict, optional
        Options of the verb hdf5, in the same way: '{"to": "out/h5", "tokenizer": "neox.json", "max_seq_length": 2048}'.
    dropped : str, optional
        Folder for the documents that are not kept, a file per input file (<shard>.jsonl.gz) with a line for each: id, source, shard, row (from
        0) and reasons, the names of all parts of the rule and filters that drop it, or `beyond cut`, `not sampled`, `too short` or `bad
        record`. Not with `shuffle`, `max_size` or `shards`.
    dropped_documents : bool, optional
        Put each dropped document into its line too, as it was, under `document`.
    shuffle : bool, optional
        Write the documents of all shards in an order drawn by the seed.
    max_size : int, optional
        Stored bytes of an output file at most. With it, or with `shuffle`, documents go to files <name>-0000.jsonl.gz, -0001 and so on;
        without, to one file per input file.
    shards : int, optional
        Number of output files, of about the same size, in place of `max_size`; fewer if few documents are kept.
    name : str
        Name of these files.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the new documents; by default that of each input file.
    where : str, optional
        Keep documents for which this holds: id, source, added, created, metadata.<field> (at any depth: metadata.page.hash) and attribute keys
        (a unique ending is enough; of one of several sets with the key: `set/ending` in backticks), numbers and 'strings', joined by == != < <=
        > >=, in (..., ...), is None, is not None, + - * /, and, or, not. A comparison with a missing value is false. Numbers are compared
        exactly, arithmetic is in double precision.
    attributes : list of str, optional
        Attribute sets to read; by default those that rules and filters need. For filters, later ones win where two have one key.
    block : list of str, optional
        Files of ids, or of sources and ids: drop the listed documents. They are flagged first, as by the verb block.
    allow : list of str, optional
        Files of the same kind: keep only the listed documents.
    thresholds : str or Thresholds, optional
        Keep only documents inside of the bounds that quantiles wrote into this file, or that stand there in the JSON form of the LUMI chain.
    downsample : list of str, optional
        Keep this many documents (bytes or tokens, see `unit`) of each group: 100000; or a share of it: 0.3; or of some groups, as words or as a
        map: en=100000 de=0.3, while the others are kept whole. Of the documents that rules and filters keep, those with the smallest hash of
        source and id are taken, equal ones in order, until the next would exceed the number: documents stay whole, and a smaller number takes
        some of those of a larger one. All are read twice: first to find what to keep, in the whole dataset also where `only` names the shards
        to write.
    budget : list of str, optional
        Shares of groups in the new version, which add up to 100 %, or a number of tokens for each, as words or as a map: web=40% code=30%
        books=30%, or web=8B code=500M (K, M, B, T: 10^3 to 10^12). Nothing is taken of other groups. Tokens are counted by the attribute of the
        tagger tokens, or see `unit`. Documents of a group with too little are taken several times (`max_epochs`), all as often as that goes and
        then once more those with the smallest hash, as in `downsample`: documents stay whole, and a larger budget holds those of a smaller one.
        What cannot be had is refused, with the nearest that can.
    tokens : str, optional
        Tokens of all groups of `budget`: 20B; by default as many as its shares allow. Without `budget`, groups have the shares that they have.
    max_epochs : int
        Times that `budget` takes a document at most.
    by : str, optional
        Column of the groups of `downsample` or `budget`: source, an attribute key or metadata.<field>; by default source for a budget, else all
        documents are one group. Documents without a value are in a group with an empty name.
    unit : str, optional
        What `downsample` or `budget` counts: documents (the default of downsample), bytes (of text), tokens (by the tokenizer of `ragged`, else
        of `hdf5`, which doubles its work), or a column with a whole number for each document, such as metadata.tokens. The default of a budget
        is the attribute of the tagger tokens, and what `ragged` puts around each document.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    allow_unmatched : bool, optional
        Take a list of which no document has an entry, or that is empty. Otherwise that is an error, since such a list is mostly another one
        than was meant, or has its ids in another form than the documents.
    include : list of str, optional
        Filters in JSONPath or jq, as the Dolma toolkit has them: keep only documents that one of them matches. An attribute that no row has is
        an error, or a note if the filter expects that it is missing: `@.k && @.k[0] ...`, `.attributes.k // []`.
    exclude : list of str, optional
        Filters of the same kind: drop the documents that one of them matches.
    syntax : {"jsonpath", "jq"}
        Language of the filters.
    replace : list of dict, optional
        Spans to replace, each with the keys span, min_score, max_score, replacement and syntax, as JSON: '{"span":
        "$.attributes.pii__pii__EMAIL_ADDRESS", "min_score": 0.5, "replacement": "|||EMAIL|||"}'. Those with a score of min_score or more, and
        below max_score, are replaced; {} stands for the span's text.
    merge_attributes : bool, optional
        Write the attributes of the sets in `attributes` into the documents, as the Dolma toolkit does.
    discard_fields : list of str, optional
        Fields that the new documents do not have.
    min_text_length : int, optional
        Bytes of text, without white space around it, that a document needs after replacement.
    provenance : bool, optional
        Write into the metadata where each document comes from: file name and line.
    sample : float, optional
        How often each document is taken: 0.3 for three of ten, 2.5 for each twice and half of them once more; selected by a hash of source and
        id.
    seed : int, optional
        Seed of the hash of `sample` and `downsample`, and of the shuffle.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    MixSummary
        With the number of documents for which each part of the rule holds, and that each filter matches.

    Raises
    ------
    StageError
        Some shards failed, for example because attributes do not line up.
    ExpressionError
        A rule or filter cannot be parsed, or names an unknown column.
    UsageError
        An argument is unknown, or has a value that it cannot have; no row has an attribute that a filter names.
    """

def quantiles(
    dataset: str | Dataset | Summary,
    /,
    signals: Sequence[str] | str | None = None,
    *,
    by: Sequence[str] | str | None = "source",
    level: Mapping[str, str] | Sequence[str] | None = None,
    tails: Mapping[str, str] | Sequence[str] = (),
    nulls: Literal["drop", "keep", "fail"] = "drop",
    probabilities: Sequence[float] | None = None,
    over: Literal["all", "kept"] = "all",
    where: str | Rule | None = None,
    sample: Mapping[str, float] | Sequence[str] | float | None = None,
    seed: int = 0,
    name: str = "quantiles",
    attributes: Sequence[str] = (),
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> QuantilesSummary:
    """Find the quantiles of signals, for all documents and for each group of them, exactly.

    Example: dolma-dask quantiles corpus/wiki/v0 --signals word_count median_word_length --by source --level regular

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it. The result is written to its quantiles/.
    signals : list of str, optional
        Attribute keys (a unique ending is enough, set/ending for one of several sets) or metadata.<field>, with one number per document; by
        default every such attribute key.
    by : list of str
        Column with a value for each group: source, an attribute key or metadata.<field> (at any depth: metadata.page.lang), of strings, bools
        or few numbers; at most 1,000 groups. Those of several columns are named as in en/head. "none" makes no groups. The group "all" is
        always there; a value "all" is named "=all".
    level : {"regular", "strict", "even_stricter", "strictest"} or list of str, optional
        Also write thresholds: the quantiles 0.1 and 0.9, 0.2 and 0.8, 0.3 and 0.7, 0.4 and 0.6. Behind it, others for some groups and signals:
        strict de=regular perplexity=strictest en.perplexity=regular.
    tails : list of str, optional
        Ends of the distribution of a signal that are cut, as NAME=lower, NAME=upper or NAME=both, or {name: tail}; by default those of the LUMI
        chain for the signals that it uses, under RedPajama-V2's names, one end for others of the built-in taggers that are bad at one end alone
        (lengths: lower), and both for the rest.
    nulls : {"drop", "keep", "fail"}
        Fate of a document without a value of a signal, for mix with these thresholds: it is dropped, it is kept, or mix fails and names it.
    probabilities : list of float, optional
        Quantiles to find, from 0 to 1; by default 0.01 to 0.99, with all that the levels need.
    over : {"all", "kept"}
        All documents, or only those that no set of duplicates flags, of dedupe or attached.
    where : str, optional
        Only documents for which this holds, as in mix.
    sample : float, {str: float} or list of str, optional
        Fraction of the documents to look at, selected by a hash of source and id: the way to huge data, since the values that are kept shrink
        with it. Or one for each of some groups: en=0.0002 de=0.0005; others are looked at whole.
    seed : int, optional
        Seed of that hash.
    name : str
        Name of the file, quantiles/<name>.json. Quantiles of other options need another name, or `overwrite`.
    attributes : list of str, optional
        Attribute sets to look in; by default all.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    QuantilesSummary
        With the quantiles, and as a rule for ``where`` if there is a level.

    Raises
    ------
    UsageError
        A signal or `by` is unknown, or has not one value per document; there are too many groups; the sample holds no document; the file
        of that name has other options; or an argument has a value that it cannot have.
    StageError
        Some shards could not be read, for example because attributes do not line up.

    Notes
    -----
    Missing values are left out and counted as nulls; so are infinite ones, which only Parquet can hold. A document without a group counts
    in "all" alone.
    """

def ragged(
    dataset: str | Dataset | Summary,
    to: str,
    /,
    *,
    shuffle: bool = False,
    seed: int = 0,
    max_size: int | None = None,
    id_key: str | None = None,
    tokenizer: str,
    bos: str | int | None = None,
    eos: str | int | None = None,
    format: Literal["numpy", "parquet", "dolma", "megatron", "datatrove", "mds"] = "numpy",
    compat: Literal["dolma-1.2"] | None = None,
    segment_before_tokenization: bool = False,
    name: str | None = None,
    special_tokens_in_text: Literal["text", "encode", "refuse"] | None = None,
    engine: Literal["auto", "tokenizers", "fastokens"] = "auto",
    where: str | Rule | None = None,
    attributes: Sequence[str] = (),
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Tokenize documents into files of token ids for a trainer; by default ragged NumPy arrays: <name>.<i>-of-<n>.data.npy with the ids, .len.npy with tokens per document.

    Example: dolma-dask ragged corpus/wiki/v1 out/ragged --tokenizer t5.json --eos "</s>"

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    to : str
        Flat output folder.
    shuffle : bool, optional
        Write the documents of all shards in an order drawn by the seed, in the formats dolma, megatron and datatrove.
    seed : int, optional
        Seed of the order.
    max_size : int, optional
        Bytes of ids in a file at most, 2 GiB with `shuffle`. With it, or with `shuffle`, documents of all shards go to files part-0-00000,
        -00001 and so on (`name` stands for part-0): each is whole in one file, and one that is larger has a file of its own. Without, there is
        one per shard.
    id_key : str, optional
        Column whose value stands for the id of each document in the files that have ids, such as metadata.url; where it is missing, the id
        itself.
    tokenizer : str
        A tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub: EleutherAI/pythia-70m, with a revision behind
        @.
    bos : str, optional
        Token to put before each document, or none, the default. In Python also its id.
    eos : str, optional
        Token to put after each document, or none; by default that of the tokenizer for dolma, megatron and datatrove, whose readers need one,
        else none. In Python also its id.
    format : {"numpy", "parquet", "dolma", "megatron", "datatrove", "mds"}
        Format of the files: numpy (ids and lengths), parquet (a row per document), dolma (as the Dolma toolkit's tokens, for OLMo), megatron
        (.bin and .idx), datatrove (.ds) or mds (MosaicML's streaming datasets).
    compat : {"dolma-1.2"}, optional
        dolma-1.2: encode texts as the Dolma toolkit's tokens. White space around a text goes, documents of nothing else are left out and
        counted, special tokens that a text spells out are control tokens (unless `special_tokens_in_text` says otherwise), and a document that
        begins with `bos` or ends in `eos` gets no second one.
    segment_before_tokenization : bool, optional
        Encode each paragraph by itself, with the line ends before it: no token goes over a line end. As the option of the Dolma toolkit.
    name : str, optional
        Beginning of the file names; by default the dataset's folder. Shards that are numbered already, as C4's, keep their names.
    special_tokens_in_text : {"text", "encode", "refuse"}, optional
        Special tokens that a text spells out, such as <|endoftext|>: become its characters (text), control tokens (encode), or make it a bad
        record (refuse). By default text.
    engine : {"auto", "tokenizers", "fastokens"}
        Engine that makes the ids, which are the same: fastokens where it is installed (extra fast) and has proved equal for the tokenizer
        (auto), or tokenizers.
    where : str, optional
        Keep only documents for which this holds, as in mix, without writing them first.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        The tokenizer cannot be read, or lacks a special token; or an argument is unknown, or has a value that it cannot have.
    """

def remove(
    root: str,
    /,
    *,
    ids: str,
    reason: str = "",
    hashed: bool = False,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Removal:
    """Take documents down: out of all datasets, attributes and token files below a root, and out of what is written there later.

    Example: dolma-dask remove corpus --ids takedown.txt --reason "request 17"

    Parameters
    ----------
    root : str
        Folder or URL of a dataset, or with datasets and token files below it.
    ids : str
        A file with an id per line, or source, tab and id; .jsonl with "id" and perhaps "source"; .csv, .tsv or .parquet with a column id and
        perhaps source; each also .gz or .zst. An id without source stands for that id in every source.
    reason : str
        Why, for the tombstones and the receipt.
    hashed : bool, optional
        Write tombstones without ids in clear, as digests alone; the receipt names none either.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Removal
        Each file that was changed, what was searched in vain, and what is left to do.

    Raises
    ------
    BadRecordError, CorruptFileError, SchemaError
        The list cannot be read; the message names the line.
    UsageError
        There is no such folder, or another run works below it; or an argument is unknown or has a value that it cannot have.

    Notes
    -----
    Files are replaced one by one, each whole; those that hold none of the documents stay as they are. The exit status is 1 while something is left: files that
    could not be read, or that this command cannot change, such as token files of other tools. The receipt says what to do. `mix`, `transform`, `convert`, `ragged` and `hdf5` leave documents with a
    tombstone out of what they write to or from below the root, and count them.
    """

def report(
    dataset: str | Dataset | Summary,
    /,
    *,
    to: str,
    compare: str | Dataset | Summary | None = None,
    tokens: Sequence[str] = (),
    title: str | None = None,
    examples: int = 3,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Write one HTML page that shows what happened to a dataset, and its content as JSON beside it.

    Example: dolma-dask report corpus/wiki/v1 --to wiki.html --tokens out/ragged

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it, usually the newest version. Earlier versions are found through its journal.
    to : str
        Path or URL of the page, ending in .html.
    compare : str or Dataset, optional
        Another version or run: the page shows what is different in `dataset`, signal by signal.
    tokens : list of str, optional
        Folders that ragged or hdf5 wrote from it, or from the dataset that it is compared with.
    title : str, optional
        Heading of the page.
    examples : int
        Documents to show on each side of each bound of the rule.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary

    Raises
    ------
    UsageError
        `to` is no .html file, is one that is no report, or lies among the documents or attributes; or a folder of `tokens` has no journal;
        or an argument is unknown, or has a value that it cannot have.
    StageError
        Some shards could not be read, for example because attributes that the rule needs are stale; sets that it does not need are
        left out then, with a note.

    Notes
    -----
    While no file of the datasets has changed, the same command writes nothing.
    """

def reshard(
    to: str,
    /,
    *,
    sources: Sequence[str],
    rates: Sequence[float] = (),
    max_size: int | None = None,
    shards: int | None = None,
    seed: int = 42,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Join token files of the Dolma toolkit's format to files of one size, 000000.npy and so on, each source as often as its rate says.

    Example: dolma-dask reshard out/train --sources out/wiki --rates 2.5 --max-size 4000000000

    Parameters
    ----------
    to : str
        Flat folder or URL of the new files.
    sources : list of str
        Folders or URLs of token files.
    rates : list of float, optional
        Rate of each source, in their order: 2.5 takes every file twice, and half of them, by the seed, once more. By default every file once.
    max_size : int, optional
        Bytes of ids in a file at most, 2 GiB by default; a file that is larger stays alone.
    shards : int, optional
        Number of files, of about the same size, in place of `max_size`.
    seed : int
        Seed of the samples; rates that are whole numbers draw none.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some files could not be made, for example because a table does not belong to its ids.
    UsageError
        A source has no token files or is not finished, rates cannot be read, or a file would be taken more often than there are files to make.
    """

def rule_overlap(
    dataset: str | Dataset | Summary,
    where: str | Rule | None,
    /,
    *,
    attributes: Sequence[str] = (),
    to: str | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Figure:
    """Count what each condition of a rule drops, what it drops alone, and what pairs of conditions drop together.

    Example: dolma-dask rule-overlap corpus/wiki/v0 "word_count >= 50 and symbol_to_word_ratio <= 0.1" --to overlap.png

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    where : str
        Rule, as in mix; its conditions are what `and` joins, and of thresholds the bounds of each signal.
    attributes : list of str, optional
        Attribute sets to look in; by default all.
    to : str, optional
        Picture to write, ending in .png, .svg or .html.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Figure
        A heat map: of the documents that the condition of a row drops, the share that the condition of a column drops too. ``frame()`` has a row
        per condition, with the documents that it drops and those that no other drops.

    Raises
    ------
    UsageError
        The rule cannot be read, or names what is not there.
    StageError
        Some shards could not be read, for example because attributes do not line up.

    Examples
    --------
    >>> dk.rule_overlap("corpus/v0", dk.thresholds("corpus/v0", "regular"))  # doctest: +SKIP
    """

def run(
    path: str,
    /,
    *,
    variables: Mapping[str, object] | Sequence[str] = (),
    only: Sequence[str] = (),
    from_: str | None = None,
    prune: int | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool | None = None,
) -> PipelineSummary:
    """Run the stages of a YAML file, one after the other, with one cluster; the same command goes on where they stopped.

    Example: dolma-dask run configs/wiki.yaml --set raw=dumps/wiki tokenizer=t5.json --dry-run

    Parameters
    ----------
    path : str
        The file: `stages:` is a list of verbs with their options, named as on the command line. See configs/ for examples.
    variables : list of NAME=VALUE, optional
        Values for ${NAME} in the file. They replace those of its `variables:`. In Python a map.
    only : list of str, optional
        Only these stages, by name, or by verb for all of its stages.
    from_ : str, optional
        Only this stage and those after it.
    prune : int, optional
        A rehearsal on the first N shards of what is read, which writes elsewhere: what would go to corpus/v1 goes to corpus/v1-rehearsal-N.
    dry_run : bool, optional
        Show for each stage what it would do and what is done, and do nothing.
    overwrite : bool, optional
        Do everything again, and replace what is there: files of other options too, and those that this tool did not make.
    scheduler : str, optional
        For all stages: auto, synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        For all stages: processes or threads; by default one per processor.
    cluster : str, optional
        One cluster for all stages, started when the first has work: laptop, slurm, lumi, allocation, or a YAML file with a profile.
    progress : bool, optional
        Show a progress bar for each stage.

    Returns
    -------
    PipelineSummary
        A row per stage.

    Raises
    ------
    UsageError
        The file is wrong: every mistake with line and column. Nothing was run.
    StageError
        A stage failed; those before it are finished. The summary is in its details.

    Notes
    -----
    All mistakes in the file are named, with line and column, before anything runs. A stage whose bad records are as few as
    max_bad_fraction allows goes on, tells how many they are, and leaves the exit status 0. With more of them, one that keeps their rows with an error in
    them (tag, dedupe) goes on too, and the exit status is 1. One that fails, or a validate that finds problems, ends the run.
    """

def schema(
    dataset: str | Dataset | Summary,
    /,
    *,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Schema:
    """List the fields of documents and of their metadata: kinds, how often they are null or absent, an example, and their name as a column.

    Example: dolma-dask schema corpus/wiki/v0

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Schema

    Raises
    ------
    StageError
        Some shards could not be read.

    Examples
    --------
    >>> dk.schema("corpus/v0", prune=4)  # doctest: +SKIP
    """

def show_cluster(
    dataset: str | Dataset | Summary,
    id: str,
    /,
    *,
    name: str = "fuzzy",
    of_source: str | None = None,
    most: int = 8,
    max_record_bytes: int = 64000000,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
) -> ClusterView:
    """Show the documents that dedupe found to be similar to one: the survivor, and how the others differ from it.

    Example: dolma-dask show-cluster corpus/wiki/v0 7

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    id : str
        Id of any document of the cluster; the summary of dedupe and the report name survivors of the largest, clusters/<name>.parquet all
        members.
    name : str
        Attribute set that dedupe wrote, with how="fuzzy".
    of_source : str, optional
        Source of the document, where several sources have this id.
    most : int
        Documents to show at most; the rest is counted.
    max_record_bytes : int
        As dedupe was given it: longer lines are bad records.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.

    Returns
    -------
    ClusterView

    Raises
    ------
    UsageError
        There is no such set or document, the document is in no cluster, or documents of several sources have the id.
    DataError
        The documents are not those that were deduplicated.
    """

def show_tokenizer(tokenizer: str, /) -> TokenizerAnswer:
    """Tell what a tokenizer is: vocabulary, special tokens, what ends documents, bytes per token, and which engine makes its ids.

    Example: dolma-dask show-tokenizer neox.json

    Parameters
    ----------
    tokenizer : str
        A tokenizer.json, a folder that has one, or a model on the hub: EleutherAI/pythia-70m.

    Returns
    -------
    TokenizerAnswer

    Raises
    ------
    UsageError
        The tokenizer cannot be read.
    """

def sign(
    dataset: str | Dataset | Summary,
    to: str,
    /,
    *,
    component: Literal["minhash", "duplicates"] = "minhash",
    signatures: str | None = None,
    where: str | Rule | None = None,
    attributes: Sequence[str] = (),
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Write MinHash signatures of documents, or a list of duplicates, as RedPajama-V2 publishes them: <snapshot>/<shard>/<lang>_<bucket>.minhash.parquet.

    Example: dolma-dask sign corpus/rpv2/v0 out/minhash

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it, whose ids are those of RedPajama-V2 (convert --mapping redpajama_v2 makes them).
    to : str
        Output folder. `dedupe` takes signatures from there: --how fuzzy --scheme redpajama_v2 --signatures FOLDER.
    component : {"minhash", "duplicates"}
        What to write. Duplicates are documents for which `where` holds, in .duplicates.parquet files: --where "exact is not None" for those
        that dedupe has flagged.
    signatures : str, optional
        Folder or URL of MinHash tables, from which signatures are taken instead of making them of the texts, as in dedupe: the tables of all
        files that convert has combined in a shard become one table. Documents without a row there get none.
    where : str, optional
        Only documents for which this holds, as in mix.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary
        With `signatures` its counts tell documents without a row in the tables, and rows without a document.

    Raises
    ------
    StageError
        Some shards failed; one with other ids does.
    UsageError
        Duplicates lack a rule, or are of shards in which published files were combined; there are no such tables; or an argument is unknown, or has
        a value that it cannot have.

    Notes
    -----
    13 words to an n-gram, 128 values, seed 42; a document of fewer words has a row without signature. A table has the documents of a shard: of one published file,
    or of those that `convert` has combined there, which its metadata lists. `dedupe` needs no tables.
    """

def signals(
    dataset: str | Dataset | Summary,
    to: str,
    /,
    *,
    artifacts: str | None = None,
    where: str | Rule | None = None,
    attributes: Sequence[str] = (),
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Write the rule-based quality signals of all documents as RedPajama-V2 publishes them: <snapshot>/<shard>/<lang>_<bucket>.signals.json.gz.

    Example: dolma-dask signals corpus/rpv2/v0 out/quality_signals --artifacts lists

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it, whose ids are those of RedPajama-V2 (convert --mapping redpajama_v2 makes them).
    to : str
        Output folder.
    artifacts : str, optional
        Folder with files that taggers use: lists of words, domains and addresses, models. dolma-dask list NAME shows which files a tagger uses,
        and their names.
    where : str, optional
        Only documents for which this holds, as in mix.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some shards failed; one with other ids does.
    UsageError
        Published files were combined in the shards; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Files are those of published files, one each: of a dataset in which `convert` has combined them there are none. `tag` needs no such files.
    Signals whose list is not among the artifacts are null.
    """

def stat(
    dataset: str | Dataset | Summary,
    /,
    *,
    attributes: Sequence[str] = (),
    regex: str | None = None,
    bins: int = 1000,
    report: str | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Stat:
    """Count the scores and lengths of attributes: quantiles, and the bins of the Dolma toolkit's stat.

    Example: dolma-dask stat corpus/wiki/v0 --attributes gopher_v2 --report out/stat

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    attributes : list of str, optional
        Attribute sets to look at; by default all.
    regex : str, optional
        Only attribute keys in which this regular expression is found.
    bins : int
        Bins of a series in the report at most.
    report : str, optional
        Folder for summaries.jsonl.gz, as the Dolma toolkit writes it: name, counts, bins, total and sum of each series.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Stat

    Raises
    ------
    UsageError
        There is no such attribute set, no key that fits, or the regular expression cannot be read; or the report would replace a file that
        says something else.
    StageError
        Some shards could not be read, for example because attributes do not line up with their documents.
    """

def status(
    dataset: str | Dataset | Summary,
    /,
    *,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
) -> StatusSummary:
    """Tell what is done, left and changed in a dataset: a row per verb and what it writes.

    Example: dolma-dask status corpus/wiki/v0

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL of a dataset, of token shards, or of an index of dedupe. On the command line also a root of datasets: all below it are
        shown.
    source : str, optional
        Name of the folder of a source; with `version`.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.

    Returns
    -------
    StatusSummary
        Its exit status is 1 if some shard is left or was made from files that have changed, a run was stopped or ended over its budget of bad records, or the
        newest `validate` found problems.

    Raises
    ------
    UsageError
        Nothing is there that this tool knows.
    """

def tag(
    dataset: str | Dataset | Summary,
    /,
    taggers: Sequence[str | Tagger | Callable[..., Any]] | str | Tagger | Callable[..., Any],
    *,
    experiment: str | None = None,
    tokenizer: str | None = None,
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] | None = None,
    against: Sequence[str] | str | None = None,
    against_text: Sequence[str] | str | None = None,
    against_by: str | None = None,
    ngram: int | None = None,
    artifacts: str | None = None,
    tagger_modules: Sequence[str] | str | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Run taggers over every document, in one pass, and write their attributes beside the documents.

    Example: dolma-dask tag corpus/wiki/v0 --taggers gopher_v2 char_length_v1

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    taggers : list of str
        Names of taggers (see: dolma-dask list), or places of yours, file.py:name or module:name: a tagger, or a function of one text with a
        type for what it returns. From Python also the objects, or one without a list.
    experiment : str, optional
        Write the attributes of all taggers to this one attribute set; by default each tagger has a set of its own name.
    tokenizer : str, optional
        Tokenizer whose tokens taggers count: a tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub:
        EleutherAI/pythia-70m, with a revision behind @.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    against : list of str, optional
        Benchmarks that documents are compared with, for the tagger contamination: files, folders or globs of JSON lines, Parquet, or text with
        an item in each line. Each file is one.
    against_text : list of str, optional
        Fields of an item that are compared, each by itself; dots lead into objects, and of a list all texts are taken. By default text.
    against_by : str, optional
        Field of an item with the name of its benchmark, where a file holds several.
    ngram : int, optional
        Words of the n-grams by which documents are compared. By default 13.
    artifacts : str, optional
        Folder with files that taggers use: lists of words, domains and addresses, models. dolma-dask list NAME shows which files a tagger uses,
        and their names.
    tagger_modules : list of str, optional
        Python files, or modules, with taggers written for the Dolma toolkit (@add_tagger classes), which are then known by their names.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary

    Raises
    ------
    StageError
        Some shards failed.
    UsageError
        An unknown tagger, or an attribute set that this command did not make; or an argument is unknown, or has a value that it
        cannot have.

    Notes
    -----
    With on_bad_record="quarantine" every bad record keeps its row, with an error in it; more of them than `max_bad_fraction` allows make the exit status 1.
    """

def trace(file: str, row: int, /, *, position: int | None = None, tokenizer: str | None = None) -> Traced:
    """Tell which documents a row of a token file is made of: source, id, shard, row, tokens, and whether they are there still.

    Example: dolma-dask trace out/ragged/v1.00000-of-00001.data.npy 7

    Parameters
    ----------
    file : str
        A token file: .data.npy, .npy, .bin, .ds, .mds, .parquet or .h5.
    row : int
        Row of the file, from 0: a document, or a row of HDF5.
    position : int, optional
        Only the document that the token at this position of the row is of.
    tokenizer : str, optional
        Show the text of the tokens: the tokenizer that made them.

    Returns
    -------
    Traced

    Raises
    ------
    UsageError
        There is no such file, row or position, or nothing tells the documents of the file.

    Examples
    --------
    >>> dk.trace("out/rows/part-000000-00000.h5", 12).documents[0].id  # doctest: +SKIP
    """

def transform(
    dataset: str | Dataset | Summary,
    /,
    function: str | Callable[..., Any],
    *,
    where: str | Rule | None = None,
    attributes: Sequence[str] = (),
    to: str,
    provenance: bool = False,
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] | None = None,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_bad_fraction: float = 0.01,
    max_record_bytes: int = 64000000,
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> Summary:
    """Rewrite the texts of documents by a function of yours, and write them as a new version of the dataset.

    Example: dolma-dask transform corpus/wiki/v0 --function clean.py:strip_menus --to corpus/wiki/clean

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    function : str
        Where the function is: file.py:name or module:name. From Python also the function itself. It gets a text and returns a text, or nothing
        to drop the document. If its first parameter has the type dict, or the name document, doc or record, it gets the whole document and
        returns that; with the type pyarrow.Array, or the name texts, all texts of a block, and returns as many, null where a document is
        dropped.
    where : str, optional
        Keep and rewrite only documents for which this holds, as in mix.
    attributes : list of str, optional
        Attribute sets to read for the rule; by default those that it needs.
    to : str
        Root of the new version; its documents/ is written.
    provenance : bool, optional
        Write into the metadata where each document comes from, file name and line, and into that of changed ones the name and digest of the
        function.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the new documents; by default that of each input file.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    on_bad_record : {"fail", "quarantine"}
        Fail the shard at the first bad record, or quarantine bad records with file, row, reason and bytes.
    max_bad_fraction : float
        Share of rows that may be quarantined; with more of them the exit status is 1.
    max_record_bytes : int
        Longer lines are bad records, as are rows of Parquet with longer texts, and pages of it that need more are refused. This bounds the
        memory of a worker: up to 20 times as much for one record.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summary
        With the numbers of documents changed, unchanged and dropped, and of characters before and after.

    Raises
    ------
    StageError
        Some shards failed, for example because the function raised.
    BadRecordBudgetError
        The function failed on more documents than `max_bad_fraction` allows.
    UsageError
        The function cannot be used; or an argument is unknown, or has a value that it cannot have.

    Notes
    -----
    Documents keep their ids. Attributes of the old version are not copied: tag the new one.
    """

def validate(
    dataset: str | Dataset | Summary,
    /,
    *,
    source: str | None = None,
    against: str | Dataset | Summary | None = None,
    raw_id: str | None = None,
    attributes: Sequence[str] | None = None,
    sample: float | None = None,
    seed: int = 0,
    to: str | None = None,
    problems: int = 10,
    max_record_bytes: int = 64000000,
    shuffle: Literal["files", "dask"] = "files",
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> ValidateSummary:
    """Check every file and every row: records, unique ids, attributes that line up, spans inside of texts, order between versions.

    Example: dolma-dask validate corpus/wiki/v1 --against corpus/wiki/v0

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it; with `version`, a root of sources. On the command line also a root of datasets: all below it are
        checked.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder, and documents need the field.
    against : str or Dataset, optional
        Earlier version: every (source, id) must stand in it, and rows of files of the same name must keep their order. With `version` also the
        name of another version of the same source. A folder called raw without documents/ in it: every raw record must be a document here, and
        every document one of them, by ids as convert makes them.
    raw_id : str, optional
        Field of the id in raw records, as the id of convert; by default id, or else file and row.
    attributes : list of str, optional
        Attribute sets to check; by default all. In a pipeline [] checks documents alone, before stages that make attributes.
    sample : float, optional
        Look at this share of the files only, such as 0.01; the report says what was not looked at.
    seed : int, optional
        Draws another sample.
    to : str, optional
        Write the report there too, as JSON.
    problems : int
        Problems of each kind that are shown, the first by file and row; all are counted.
    max_record_bytes : int
        Longer records are bad.
    shuffle : {"files", "dask"}
        How identities reach each other: through files in the dataset, or through Dask's dataframe shuffle, for slow shared storage.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    overwrite : bool, optional
        Do everything again, and replace what is there: of other options too, or not made by this tool.
    dry_run : bool, optional
        Say what would be done, and do nothing.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    ValidateSummary
        Its exit status is 1 if there is any problem.

    Raises
    ------
    StageError
        Some files could not be checked at all.
    UsageError
        There is no such dataset or attribute set, or an argument is unknown or has a value that it cannot have.

    Notes
    -----
    Kinds of problems:

    unreadable_file       a file is truncated, damaged, or not what its suffix says
    schema                a column or key has another type than it needs, or than in other files
    bad_record            a line is no valid document
    empty_id              an id without characters
    bad_metadata          metadata that is no object
    duplicate_id          a (source, id) that stands earlier in the dataset too; dedupe by="id" flags it
    missing_attributes    a document file without file in an attribute set
    two_attribute_files   a document file with two files in an attribute set
    orphan_attributes     an attribute file without document file
    misaligned            rows of attributes and documents do not belong together
    stale                 attributes were made from other text than the documents have now
    two_runs              flags that depend on all shards, made by more than one run
    bad_attribute_row     a line is no valid attribute row
    span_outside_text     not 0 <= start <= end <= code points of the text
    not_finite            a score or number that is infinite or none
    not_document_level    several spans where the key has one of the whole text
    journal_mismatch      a file has other bytes than the journal says were written
    not_in_against        a document that the earlier version does not have
    lost_record           a raw record whose id no document has, where `against` is raw
    order_changed         rows in another order than in the earlier version

    Attribute sets that no journal proves are named in a note; they are no problem. With `sample`, `only` or `prune` ids are
    compared among the selected files only, and with `sample` only with the earlier files of their names. Then, and where a file cannot be read
    to its end, nothing is said of what might be there: a note says which records or documents were not looked for.

    A folder called raw without documents/ is of any form: its files are read as convert reads them. What can be told of them is whether they can be read, how
    many records they hold, and which fields these have.
    """

def versions(root: str | None = None, /) -> Versions:
    """List the sources below a root, with their versions, documents and attribute sets.

    Example: dolma-dask versions corpus

    Parameters
    ----------
    root : str, optional
        Folder or URL with sources/<source>/<version> in it, or <source>/<version>; by default DOLMA_DASK_ROOT of the environment.

    Returns
    -------
    Versions
    """

def warm_up(*, workers: int | None = None) -> Summary:
    """Compile all kernels now, once for all later processes; else each is compiled when it is first used.

    Example: dolma-dask warm-up

    Parameters
    ----------
    workers : int, optional
        Processes; by default one per processor.

    Returns
    -------
    Summary
        With the time that it took.
    """

def what_if(
    dataset: str | Dataset | Summary,
    thresholds: str | Thresholds | QuantilesSummary | None = None,
    /,
    *,
    where: str | Rule | None = None,
    to: str | None = None,
    examples: int | None = None,
    length: str | None = None,
    tokens_per_byte: float | None = None,
    tokenizer: str | None = None,
    name: str = "quantiles",
    seed: int = 0,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> WhatIf:
    """Tell which rule of some thresholds drops what, and what a stricter level would cost, from attributes alone.

    Example: dolma-dask what-if corpus/wiki/v0 regular --to what_if.html

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ and attributes/ in it.
    thresholds : str or Thresholds, optional
        A level of its quantiles (regular, strict, even_stricter or strictest), a file of thresholds, or what thresholds() or quantiles()
        returned; by default regular.
    where : str, optional
        A rule, as in mix, in place of thresholds: its conditions such as "word_count >= 50" are the rules that are looked at, with documents
        just inside and outside of each. Its other conditions are taken as given: only documents for which they hold are counted.
    to : str, optional
        Page to write, ending in .html, with sliders for all rules; it needs no network.
    examples : int, optional
        Documents to show on each side of each bound, with the beginnings of their texts; by default 2 on a page and for a rule, and none
        elsewhere.
    length : str, optional
        Column that grows with the text, to estimate bytes from; by default a number of characters (ccnet_length, that of char_length_v1,
        character_count), else of words.
    tokens_per_byte : float, optional
        Tokens per byte of text; by default 0.25.
    tokenizer : str, optional
        Measure it with this tokenizer, on some documents: a JSON file, or a folder with tokenizer.json.
    name : str
        Name of the quantiles that levels are taken from.
    seed : int, optional
        Seed of the sample of documents on the page.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    WhatIf
        Counts of documents, bytes and tokens by rule, level and group; prints as tables, and is a page with sliders in a notebook.

    Raises
    ------
    UsageError
        There are no such thresholds, quantiles or columns, or an argument has a value that it cannot have.
    StageError
        Some shards could not be read, for example because attributes do not line up.
    """

def word_buckets(
    dataset: str | Dataset | Summary,
    /,
    *,
    to: str,
    where: str | Rule | None = None,
    attributes: Sequence[str] = (),
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
    only: Sequence[str] | None = None,
    share: str | None = None,
    prune: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    progress: bool = True,
) -> WordBuckets:
    """Count words and pairs of words in the buckets of the tagger importance, and write the counts.

    Example: dolma-dask word-buckets corpus/wiki/v0 --to models/importance/wikipedia.json

    Parameters
    ----------
    dataset : str or Dataset
        Folder or URL with documents/ in it.
    to : str
        File of the counts, for --artifacts of tag: FOLDER/importance/source.json, or FOLDER/importance/NAME.json of a target.
    where : str, optional
        Keep only documents for which this holds, as in mix, without writing them first.
    attributes : list of str, optional
        Attribute sets to read; by default those that the rule needs.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.
    only : list of str, optional
        Only shards whose path contains this, or matches it as a shell pattern.
    share : str, optional
        Only a share of the shards, such as 3/16 for task 3 of an array of 16 jobs: every sixteenth, from the third on.
    prune : int, optional
        Only the first N shards, to try a command.
    scheduler : str, optional
        auto (whichever ends soonest), synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    cluster : str, optional
        Profile of workers: laptop, slurm, lumi, allocation, or a YAML file; see `dolma-dask cluster --help`.
    progress : bool
        Show a progress bar.

    Returns
    -------
    WordBuckets
    """

def write_attributes(
    frame: Any,
    dataset: str | Dataset | Summary,
    name: str,
    /,
    *,
    overwrite: bool = False,
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_record_bytes: int = 64000000,
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] | None = None,
    partition_bytes: int | None = 64000000,
    only: Sequence[str] = (),
    prune: int | None = None,
    compute: bool = True,
    scheduler: str | None = None,
    progress: bool = True,
    source: str | None = None,
    version: str | None = None,
    ids_as_text: bool = False,
    skip: Sequence[str] = (),
) -> Summary | Delayed:
    """Write columns of a Dask dataframe or bag beside the documents that it was read from, as an attribute set.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame or dask.bag.Bag
        What `read_dataframe` or `read_bag` gave, with columns added: all rows, in their order and partitions. ``id`` and ``source`` are needed
        and compared with the documents, ``text`` is compared if it is there; other columns of documents are left out. Every further column
        becomes an attribute: numbers scores of the whole document, truth values and strings scalars, lists of ``[start, end, score]`` spans,
        dicts of numbers objects. A missing value (null, NaN) leaves the key out.
    dataset : str, Dataset or Summary
        What the frame was read from.
    name : str
        Name of the set. The key of a column is ``<name>__<name>__<column>``; a column that is named ``a__b__c`` keeps its name.
    overwrite : bool, optional
        Replace a set that another verb has made, or one with other columns.
    on_bad_record : {"fail", "quarantine"}
        Fail at a document that cannot be read, or keep its row with an error in it (of a frame read with ``on_bad_record="null"``).
    max_record_bytes : int
        Longer lines are bad records.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}, optional
        Format of the attribute files; by default that of the document file.
    partition_bytes : int
        As it was given to `read_dataframe` or `read_bag`: it tells which rows are in which partition.
    only : list of str, optional
        As it was given to `read_dataframe` or `read_bag`: it tells which rows are in which partition.
    prune : int, optional
        As it was given to `read_dataframe` or `read_bag`: it tells which rows are in which partition.
    compute : bool
        False: return the task that does it, whose result is the summary.
    scheduler : str, optional
        For `dask.compute`: "threads", "synchronous", "processes"; by default the active client, else threads.
    progress : bool
        Show a progress bar; on a cluster its dashboard shows more.
    source : str, optional
        Source of all documents, for files that lack the field; with `version`, the name of its folder too.
    version : str, optional
        With `source`: the dataset is <source>/<version> below sources/ of the root that is given, or below the root itself. On the command line
        the root may be left out if DOLMA_DASK_ROOT of the environment names it.
    ids_as_text : bool, optional
        Read ids that are whole numbers as text, in documents and attributes: 17 is the id "17", and is written so.
    skip : list of str, optional
        Files, and members of archives, that are left out as if they were not there: names, folders, paths or shell patterns, such as README
        '*.pdf'. Others of no known kind are an error.

    Returns
    -------
    Summary or dask.delayed.Delayed

    Raises
    ------
    UsageError
        A column is missing, or files of others are in the way; nothing is computed then.
    AlignmentError
        The rows are not those of the documents: filtered, shuffled, sorted or repartitioned. Nothing has appeared then.
    SchemaError, DataError, SourceChangedError
        While computing: a column has a type or value that no attribute has; a file was written meanwhile.

    Examples
    --------
    >>> df = read_dataframe("corpus/v0")  # doctest: +SKIP
    >>> df["shout"] = df.text.str.count("!") / df.text.str.len()  # doctest: +SKIP
    >>> write_attributes(df, "corpus/v0", "mine")  # doctest: +SKIP
    """

def write_documents(
    frame: Any,
    to: str,
    /,
    *,
    format: Literal["jsonl.gz", "jsonl.zst", "jsonl", "parquet"] = "jsonl.gz",
    source: str | None = None,
    max_bad_fraction: float = 0.01,
    overwrite: bool = False,
    compute: bool = True,
    scheduler: str | None = None,
    progress: bool = True,
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_record_bytes: int = 64000000,
) -> Summary | Delayed:
    """Write a Dask dataframe or bag as documents: partition k becomes ``documents/part-<k>.jsonl.gz`` of a dataset.

    Every row is spelled anew, so that bytes differ from those of the lines it came from; where documents are only selected, `mix` keeps them.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame or dask.bag.Bag
        Columns (or keys of the dicts) ``id text source``, strings; ``added created``, strings, and ``metadata``, JSON text or objects, if they
        are there. All further columns become fields of the metadata, without missing values (null, NaN).
    to : str
        Root of the dataset: a folder or URL.
    format : {"jsonl.gz", "jsonl.zst", "jsonl", "parquet"}
        Format of the files.
    source : str, optional
        Source of the rows that have none.
    max_bad_fraction : float
        Share of rows that may be set aside.
    overwrite : bool, optional
        Replace files of another verb or call, and remove those that this call does not make.
    compute : bool
        False: return the task that does it, whose result is the summary.
    scheduler : str, optional
        For `dask.compute`: "threads", "synchronous", "processes"; by default the active client, else threads.
    progress : bool
        Show a progress bar; on a cluster its dashboard shows more.
    on_bad_record : {"fail", "quarantine"}
        Fail at a row that is no document (an id, text or source is null, the metadata are no object), or set it aside.
    max_record_bytes : int
        Longer rows are bad.

    Returns
    -------
    Summary or dask.delayed.Delayed

    Raises
    ------
    UsageError
        A column is missing, files of others are in the way, or the target lies in folders of a dataset; nothing is computed then.
    BadRecordError, BadRecordBudgetError, SchemaError
        While computing; nothing has appeared then.

    Examples
    --------
    >>> df = read_dataframe("corpus/v0", attributes=["gopher_v2"], short=True)  # doctest: +SKIP
    >>> write_documents(df[df.word_count > 50][["id", "source", "text"]], "corpus/v1")  # doctest: +SKIP
    """

def write_hdf5(
    frame: Any,
    to: str,
    /,
    *,
    mode: str = "LMData",
    fim_rate: float = 0.9,
    spm_rate: float = 0.5,
    fim_prefix_tok: str | None = None,
    fim_middle_tok: str | None = None,
    fim_suffix_tok: str | None = None,
    tail: Literal["pad", "drop"] = "pad",
    pack_sequences: bool = True,
    fold_long_doc: bool = True,
    short_seq_prob: float = 0.0,
    split_text_to_tokenize: bool = False,
    chunk_len_to_split: int = 2000,
    remove_bos_in_chunks: bool = False,
    eos_after_prompt: bool = False,
    completion_key: str | None = None,
    multi_turn_key: str | None = None,
    multi_turn_content_key: str | None = None,
    prompt_prefix: str | None = None,
    completion_prefix: str | None = None,
    sep_token: str | None = None,
    chosen_key: str | None = None,
    rejected_key: str | None = None,
    user_role: str = "user",
    assistant_role: str = "assistant",
    chat_template: str | None = None,
    response_delimiter: str | None = None,
    max_prompt_length: int = 512,
    prompt_key: str | None = None,
    min_sequence_len: int | None = None,
    inverted_mask: bool = False,
    packing: Literal["best_fit", "modelzoo", "next_fit", "spfhp", "lpfhp"] | None = None,
    max_sequences_per_row: int | None = None,
    max_chunk_size: int = 1024,
    tokenizer: str,
    max_seq_length: int = 2048,
    eos: str | None = None,
    pad: str | None = None,
    eos_id: int | None = None,
    pad_id: int | None = None,
    seed: int = 0,
    use_ftfy: bool | None = None,
    ftfy_normalizer: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = "NFC",
    wikitext_detokenize: bool = False,
    shuffle: bool = False,
    shuffle_seed: int = 0,
    max_rows_per_file: int = 50000,
    compat: Literal["modelzoo-2.2"] | None = None,
    special_tokens_in_text: Literal["text", "encode", "refuse"] | None = None,
    engine: Literal["auto", "tokenizers", "fastokens"] = "auto",
    source: str | None = None,
    max_bad_fraction: float = 0.01,
    overwrite: bool = False,
    compute: bool = True,
    scheduler: str | None = None,
    progress: bool = True,
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_record_bytes: int = 64000000,
) -> Hdf5Summary | Delayed:
    """Pack the documents of a Dask dataframe or bag into rows of tokens for training, in HDF5 files.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame or dask.bag.Bag
        Columns (or keys of the dicts) ``id text source``, strings; others are not read. Rows follow in their order.
    to : str
        Output folder or URL.
    mode : str
        LMData: documents as one stream of tokens, each predicted from those before it. LMData_VSL: documents side by side in rows, each seeing
        itself alone. FIM: LMData with parts of documents in another order, so that a model learns to fill in the middle. Summarization: prompts
        with their completions, which alone are predicted, each pair in a row of its own. Summarization_VSL: prompts with their completions, or
        whole dialogues, side by side in rows, each seeing itself alone. DPO: prompts with an answer that people chose and one that they
        rejected.
    fim_rate : float
        Share of the documents, or their pieces in a row, that are permuted.
    spm_rate : float
        Share of these in the order suffix, prefix, middle; the others: prefix, suffix, middle.
    fim_prefix_tok : str, optional
        Token before the prefix; needed, as the next two.
    fim_middle_tok : str, optional
        Token before the middle.
    fim_suffix_tok : str, optional
        Token before the suffix.
    tail : {"pad", "drop"}
        What happens to the last tokens, which fill no row: one more row with padding, or nothing.
    pack_sequences : bool
        Rows go on from document to document; else every document begins a row, and its last row is padded.
    fold_long_doc : bool
        Documents that are longer than a row are cut into several sequences; else they are left out.
    short_seq_prob : float, optional
        Share of rows (LMData_VSL: of documents) that are cut at random, 2 to `max_seq_length` - 1 tokens being left; the others are lost.
    split_text_to_tokenize : bool, optional
        Cut texts before they are tokenized, for tokenizers that are slow on long texts.
    chunk_len_to_split : int
        Characters after which the next space begins a piece.
    remove_bos_in_chunks : bool, optional
        Special tokens that the tokenizer adds stand around a document, not around each of its pieces.
    eos_after_prompt : bool, optional
        The token that ends a document stands behind each prompt too.
    completion_key : str, optional
        Field of the completion.
    multi_turn_key : str, optional
        Field of a dialogue, in place of both: a list, prompts and completions in turn.
    multi_turn_content_key : str, optional
        Field of the text in each item of a dialogue; by default items are texts.
    prompt_prefix : str, optional
        Words before each prompt, such as <|user|>; special tokens in them are meant.
    completion_prefix : str, optional
        Words before each completion; they are not predicted.
    sep_token : str, optional
        Token between prompt and completion; one that the vocabulary lacks is added to it.
    chosen_key : str, optional
        Field of the answer that was chosen, a text or a list of messages; by default chosen.
    rejected_key : str, optional
        Field of the answer that was rejected; by default rejected.
    user_role : str
        Name of the asking role.
    assistant_role : str
        Name of the answering role.
    chat_template : str, optional
        Jinja2 template of dialogues, or the path of a file that has it; by default that of the tokenizer, else [INST] prompt [/INST] answer.
    response_delimiter : str, optional
        Words of the template behind which the answer begins; by default found by the template.
    max_prompt_length : int
        Tokens that stay of a prompt, the last ones, where a record is longer than a row.
    prompt_key : str, optional
        Field of the prompt; with dots if it is inside of another: metadata.question. DPO can do without: the prompt is then what both dialogues
        begin with.
    min_sequence_len : int, optional
        Documents, or rows of a document by itself, of fewer tokens are left out; by default 10.
    inverted_mask : bool, optional
        The loss mask is 1 where nothing is predicted.
    packing : {"best_fit", "modelzoo", "next_fit", "spfhp", "lpfhp"}, optional
        How sequences are put together: best_fit (the default) wastes least; next_fit keeps their order; spfhp and lpfhp as published by
        Graphcore; modelzoo as that tool.
    max_sequences_per_row : int, optional
        Sequences that share a row at most; by default any number.
    max_chunk_size : int
        With packing="modelzoo": KiB of text whose sequences may share rows.
    tokenizer : str
        A tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub: EleutherAI/pythia-70m, with a revision behind
        @.
    max_seq_length : int
        Tokens of a row.
    eos : str, optional
        Token behind each document; by default the tokenizer's own. "none" for none.
    pad : str, optional
        Token that fills a row; by default the tokenizer's own, else that of `eos`.
    eos_id : int, optional
        Token behind each document, by its id.
    pad_id : int, optional
        Token that fills a row, by its id.
    seed : int, optional
        Seed of all that is drawn at random but the order of rows.
    use_ftfy : bool, optional
        Repair texts with ftfy first; by default not.
    ftfy_normalizer : {"NFC", "NFD", "NFKC", "NFKD"}
        Unicode normalization that ftfy ends with. In Python None for none.
    wikitext_detokenize : bool, optional
        Put the punctuation of wikitext together.
    shuffle : bool, optional
        Write the rows of all files in an order drawn by `shuffle_seed`.
    shuffle_seed : int, optional
        Seed of the order of rows; with `shuffle`.
    max_rows_per_file : int
        Files have at most so many rows, and nearly the same number.
    compat : {"modelzoo-2.2"}, optional
        Do as that release of ModelZoo where it differs from its documentation; see the notes.
    special_tokens_in_text : {"text", "encode", "refuse"}, optional
        Special tokens that a text spells out, such as <|endoftext|>: become its characters (text), control tokens (encode), or make it a bad
        record (refuse). By default text.
    engine : {"auto", "tokenizers", "fastokens"}
        Engine that makes the ids, which are the same: fastokens where it is installed (extra fast) and has proved equal for the tokenizer
        (auto), or tokenizers.
    source : str, optional
        Source of the rows that have none.
    max_bad_fraction : float
        Share of rows that may be set aside.
    overwrite : bool, optional
        Replace files of another verb or call, and remove those that this call does not make.
    compute : bool
        False: return the task that does it, whose result is the summary.
    scheduler : str, optional
        For `dask.compute`: "threads", "synchronous", "processes"; by default the active client, else threads.
    progress : bool
        Show a progress bar; on a cluster its dashboard shows more.
    on_bad_record : {"fail", "quarantine"}
        Fail at a row that is no document (an id, text or source is null, the metadata are no object), or set it aside.
    max_record_bytes : int
        Longer rows are bad.

    Returns
    -------
    Hdf5Summary or dask.delayed.Delayed

    Raises
    ------
    UsageError
        The tokenizer cannot be read, a column is missing, an option is unknown, files of others are in the way, or the target lies in
        folders of a dataset; nothing is computed then.
    BadRecordError, BadRecordBudgetError, SchemaError
        While computing.

    Examples
    --------
    >>> write_hdf5(df, "out/h5", tokenizer="neox.json", max_seq_length=2048)  # doctest: +SKIP
    """

def write_ragged(
    frame: Any,
    to: str,
    /,
    *,
    name: str | None = None,
    tokenizer: str,
    bos: str | int | None = None,
    eos: str | int | None = None,
    format: Literal["numpy", "parquet", "dolma", "megatron", "datatrove", "mds"] = "numpy",
    compat: Literal["dolma-1.2"] | None = None,
    segment_before_tokenization: bool = False,
    special_tokens_in_text: Literal["text", "encode", "refuse"] | None = None,
    engine: Literal["auto", "tokenizers", "fastokens"] = "auto",
    source: str | None = None,
    max_bad_fraction: float = 0.01,
    overwrite: bool = False,
    compute: bool = True,
    scheduler: str | None = None,
    progress: bool = True,
    on_bad_record: Literal["fail", "quarantine"] = "fail",
    max_record_bytes: int = 64000000,
) -> Summary | Delayed:
    """Tokenize a Dask dataframe or bag into files of token ids for each partition: NumPy arrays, or in the format of a trainer.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame or dask.bag.Bag
        Columns (or keys of the dicts) ``id text source``, strings; others are not read.
    to : str
        Flat output folder.
    name : str, optional
        Beginning of the file names; by default the last part of `to`.
    tokenizer : str
        A tokenizer.json (Hugging Face tokenizers), a folder that has one, or a model on the hub: EleutherAI/pythia-70m, with a revision behind
        @.
    bos : str, optional
        Token to put before each document, or none, the default. In Python also its id.
    eos : str, optional
        Token to put after each document, or none; by default that of the tokenizer for dolma, megatron and datatrove, whose readers need one,
        else none. In Python also its id.
    format : {"numpy", "parquet", "dolma", "megatron", "datatrove", "mds"}
        Format of the files: numpy (ids and lengths), parquet (a row per document), dolma (as the Dolma toolkit's tokens, for OLMo), megatron
        (.bin and .idx), datatrove (.ds) or mds (MosaicML's streaming datasets).
    compat : {"dolma-1.2"}, optional
        dolma-1.2: encode texts as the Dolma toolkit's tokens. White space around a text goes, documents of nothing else are left out and
        counted, special tokens that a text spells out are control tokens (unless `special_tokens_in_text` says otherwise), and a document that
        begins with `bos` or ends in `eos` gets no second one.
    segment_before_tokenization : bool, optional
        Encode each paragraph by itself, with the line ends before it: no token goes over a line end. As the option of the Dolma toolkit.
    special_tokens_in_text : {"text", "encode", "refuse"}, optional
        Special tokens that a text spells out, such as <|endoftext|>: become its characters (text), control tokens (encode), or make it a bad
        record (refuse). By default text.
    engine : {"auto", "tokenizers", "fastokens"}
        Engine that makes the ids, which are the same: fastokens where it is installed (extra fast) and has proved equal for the tokenizer
        (auto), or tokenizers.
    source : str, optional
        Source of the rows that have none.
    max_bad_fraction : float
        Share of rows that may be set aside.
    overwrite : bool, optional
        Replace files of another verb or call, and remove those that this call does not make.
    compute : bool
        False: return the task that does it, whose result is the summary.
    scheduler : str, optional
        For `dask.compute`: "threads", "synchronous", "processes"; by default the active client, else threads.
    progress : bool
        Show a progress bar; on a cluster its dashboard shows more.
    on_bad_record : {"fail", "quarantine"}
        Fail at a row that is no document (an id, text or source is null, the metadata are no object), or set it aside.
    max_record_bytes : int
        Longer rows are bad.

    Returns
    -------
    Summary or dask.delayed.Delayed

    Raises
    ------
    UsageError
        The tokenizer cannot be read, a column is missing, files of others are in the way, or the target lies in
        folders of a dataset; nothing is computed then.
    BadRecordError, BadRecordBudgetError, SchemaError
        While computing.

    Examples
    --------
    >>> write_ragged(df, "out/ragged", tokenizer="t5.json", eos="</s>")  # doctest: +SKIP
    """
