"""block: flag the documents that are in a list of ids, so that `mix` can drop them, or keep them alone.

A list of up to five million entries is held in the memory of each process, and each shard is read once, by itself. A longer one meets the
documents in the exchange: 24 bytes per entry and document go through files, and memory does not depend on the list. Both write the same bytes.
"""

from dataclasses import dataclass
from os import PathLike, fspath
from typing import Annotated

import msgspec

from dolma_dask.engine import run_job
from dolma_dask.errors import UsageError
from dolma_dask.exchange.flag_rows import COLUMNS
from dolma_dask.exchange.flagging import dataset_unit
from dolma_dask.formats import layout
from dolma_dask.io import files
from dolma_dask.io.id_keys import list_keys
from dolma_dask.io.id_lists import ListFacts, check_list, read_facts, set_name
from dolma_dask.journal import Journal
from dolma_dask.options.base import OUTPUT, Opt
from dolma_dask.options.command import command
from dolma_dask.options.groups import DatasetOptions, Documents, Format, same
from dolma_dask.options.kept import ListedOptions
from dolma_dask.options.records import RecordOptions
from dolma_dask.reading.columns import find_columns
from dolma_dask.verbs.block.job import Blocking
from dolma_dask.verbs.block.summary import BlockSummary, refuse

SMALL_BYTES = 64_000_000
"""Stored bytes of a list that is read into memory without counting its entries first."""

MAX_IN_MEMORY = 5_000_000
"""Entries of a list that is held in the memory of each process (150 MB); a longer one goes through the exchange."""


@dataclass(frozen=True, kw_only=True)
class BlockOptions(DatasetOptions, ListedOptions, RecordOptions):
    """Options of `block`."""

    unrecorded = frozenset({"exchange"})

    name: Annotated[
        str | None,
        Opt(
            "Attribute set to write, and its only key; by default the name of the file without its suffix.",
            group=OUTPUT,
        ),
    ] = None
    format: Format = None
    exchange: Annotated[
        bool | None,
        Opt(
            "Sort the list together with all documents on disk, instead of holding it in memory; by default only for more than five million "
            "entries. Not a byte of the output depends on it."
        ),
    ] = None


@command
def block(
    dataset: Documents,
    list_file: Annotated[
        str,
        Opt(
            'A file with an id per line, or source, tab and id; .jsonl with "id" and perhaps "source"; .csv, .tsv or .parquet with a column id and '
            "perhaps source, or without such a heading an id, or source and id, in each row; each also .gz or .zst. An id without source stands for that "
            "id in every source.",
            convert=same,
        ),
    ],
    /,
    *,
    options: BlockOptions,
) -> BlockSummary:
    """Flag the documents that are in a list of ids, or of sources and ids, and write the flags beside the documents.

    Example: dolma-dask block corpus/wiki/v0 takedown.txt --name takedown

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
    url = _list_url(list_file)
    name = set_name(url, "Give it another: --name") if options.name is None else options.name
    layout.check_name(name, "name")
    found = options.open(dataset)
    layout.check_no_collision([layout.with_format(shard.path, options.format) for shard in found.shards])
    journal = Journal(found.root, "block")
    facts = _known_facts(journal, name, url) or _read_facts(url, options.exchange)
    is_long = facts.entries > MAX_IN_MEMORY
    job = Blocking(
        dataset=found,
        selected=options.selected(found),
        columns=find_columns(found, COLUMNS),
        name=name,
        file_format=options.format,
        policy=options.policy,
        params=options.params(list=url, name=name),
        facts=facts,
        by_exchange=is_long if options.exchange is None else options.exchange,
        allow_unmatched=options.allow_unmatched,
    )
    done: BlockSummary = run_job(job, options)
    if not options.allow_unmatched and done.matches_nothing:
        refuse(done, url, job.shards)
    return done


def _list_url(list_file: object) -> str:
    """Return the URL of a list; refuse what is none."""
    if not isinstance(list_file, str | PathLike):
        raise UsageError(f"the list is of type {type(list_file).__name__}; expected a path or URL of a file.")
    url = files.normalize(fspath(list_file))
    check_list(url)
    return url


def _read_facts(url: str, exchange: bool | None) -> ListFacts:
    """Read the list: a small one into memory at once, where the shards will need it."""
    info = files.stat(url)
    is_small = info is not None and info.bytes <= SMALL_BYTES
    return list_keys(url).facts if is_small and not exchange else read_facts(url)


def _known_facts(journal: Journal, name: str, url: str) -> ListFacts | None:
    """Return what the journal knows of the list, if the file is as it was."""
    record = journal.records.get(dataset_unit(name))
    info = files.stat(url)
    if record is None or info is None:
        return None
    try:
        facts = msgspec.convert(record.info["list"], ListFacts)
    except msgspec.ValidationError:  # as an earlier version wrote it
        return None
    same = (facts.url, facts.bytes, facts.stamp) == (url, info.bytes, info.stamp)
    return facts if same and info.stamp else None
