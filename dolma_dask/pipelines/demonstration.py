"""demo: the whole job on real text from this Python installation, without any download; `demo_corpus` is its first part.

The raw files are collected, a tokenizer is trained on some of them, and the pipeline of ``configs/demo.yaml`` is run; then the tokens are read
back and a sample is decoded. The second run finds everything done and says so at once.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow.parquet as pq
from msgspec.structs import replace
from tokenizers import Tokenizer

from dolma_dask.clusters import check_workers
from dolma_dask.dataset import Dataset, open_dataset
from dolma_dask.errors import DataError
from dolma_dask.extras import require
from dolma_dask.io.documents import DocumentFile
from dolma_dask.loaders.ragged import open_ragged
from dolma_dask.options.base import OUTPUT, WHERE, Opt, Options
from dolma_dask.options.command import command
from dolma_dask.pipelines.pipeline import PipelineSummary, run
from dolma_dask.testing.corpus import Manifest, collect_corpus
from dolma_dask.testing.tokenizer import train_tokenizer

PIPELINE = Path(__file__).with_name("demo.yaml")
"""Also ``configs/demo.yaml``."""

VOCABULARY = 8000
SAMPLE_CHARACTERS = 160


@dataclass(frozen=True, kw_only=True)
class DemoOptions(Options):
    """Options of `demo`."""

    group = WHERE

    folder: Annotated[str, Opt("Where the data goes.", group=OUTPUT)] = "demo"
    report: Annotated[str, Opt("The page to write.", group=OUTPUT)] = "reports/demo.html"
    scheduler: Annotated[
        str | None,
        Opt(
            "auto, synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler."
        ),
    ] = None
    workers: Annotated[
        int | None, Opt("Processes or threads; by default one per processor.", convert=check_workers)
    ] = None
    progress: Annotated[bool | None, Opt("Show a progress bar for each stage.")] = None


@command
def demo(*, options: DemoOptions) -> PipelineSummary:
    """Do the whole job on text from this Python installation: package descriptions, licences, docstrings.

    Example: dolma-dask demo

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
    require("bokeh", "the demo's report")
    home, page = Path(options.folder).absolute(), str(Path(options.report).absolute())
    tokens, tokenizer = str(home / "tokens"), str(home / "tokenizer.json")
    _collect(home)
    passed = {name: getattr(options, name) for name in ("scheduler", "workers", "progress")}
    summary = run(str(PIPELINE), variables={"folder": str(home), "report": page}, **passed)
    sample = check_tokens(str(home / "v1"), tokens, tokenizer)
    done = () if summary.fresh else ("Everything was done before; nothing was computed again.",)
    notes = (f"decoded from the tokens: {sample!r}", f"tokens: {tokens}", f"report: {page}", *done)
    return replace(summary, notes=(*summary.notes, *notes))


def demo_corpus(folder: str | Path) -> Dataset:
    """Make a small dataset of real text to try things on: package descriptions, licences and docstrings of this Python installation.

    Nothing is downloaded, and the same installation gives the same documents. A second call finds everything done.

    Parameters
    ----------
    folder : str or Path
        Where it goes: ``raw/`` with the five kinds of raw files, ``tokenizer.json`` (byte-level BPE with 8,000 tokens and the end token
        ``<|endoftext|>``, trained on a part of them) and the dataset ``v0``. A folder of this machine that all workers see.

    Returns
    -------
    Dataset
        The dataset ``v0``: some thousands of documents, one folder for each kind, which is also their ``source``.

    Examples
    --------
    >>> corpus = demo_corpus("demo")  # doctest: +SKIP
    """
    home = Path(folder).absolute()
    kinds = [kind.kind for kind in _collect(home).sets]
    run(str(PIPELINE), variables={"folder": str(home)}, only=kinds, progress=False)
    return open_dataset(str(home / "v0"))


def _collect(home: Path) -> Manifest:
    """Collect the raw files, and train the tokenizer on some of them."""
    manifest, tokenizer = collect_corpus(home), home / "tokenizer.json"
    if not tokenizer.exists():
        texts = pq.read_table(home / "raw/api/api.parquet", columns=["docstring"])["docstring"]
        train_tokenizer(texts.to_pylist(), tokenizer, vocab_size=VOCABULARY)
    return manifest


def check_tokens(dataset_url: str, folder: str, tokenizer: str) -> str:
    """Read token shards back, compare one document in a hundred with its text, and return a decoded sample.

    Raises `DataError`: number of documents or ids differ.
    """
    arrays, engine, dataset = open_ragged(folder), Tokenizer.from_file(tokenizer), open_dataset(dataset_url)
    blocks = (
        block
        for shard in dataset.shards
        for block in DocumentFile(dataset.url(f"documents/{shard.path}"), ["text"])
    )
    texts = [text for block in blocks for text in block.batch.column("text").to_pylist()]
    if len(texts) != len(arrays):
        raise DataError(
            f"{folder} holds {len(arrays):,} documents; expected the {len(texts):,} of {dataset_url}."
        )
    for number in range(0, len(texts), 100):
        ids = arrays[number][:-1].tolist()  # without the end token
        if ids != engine.encode(texts[number], add_special_tokens=False).ids:
            raise DataError(f"{folder}: the tokens of document {number:,} are not those of its text.")
    return str(engine.decode(arrays[0][:-1].tolist()))[:SAMPLE_CHARACTERS] if texts else ""
