"""demo: the whole job on real text from this Python installation, without any download.

The raw files are collected, a tokenizer is trained, and the pipeline of ``configs/demo.yaml`` is run, on a LocalCluster that is started only if
there is work; then the tokens are read back and a sample is decoded. The second run finds everything done and says so at once.
"""

import html
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dolma_dask import clusters
from dolma_dask.config.pipeline import run
from dolma_dask.config.pipeline_summary import PipelineSummary
from dolma_dask.dataset import open_dataset
from dolma_dask.errors import DataError
from dolma_dask.io.documents import DocumentFile
from dolma_dask.loaders.ragged import open_ragged
from dolma_dask.settings import DEFAULT_SCHEDULER
from dolma_dask.testing.corpus import collect_corpus
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.tokens.engine import load_tokenizer

PIPELINE = Path(__file__).with_name("demo.yaml")
"""The same file as ``configs/demo.yaml``, which is not there in an installed package."""

VOCABULARY = 8000
SAMPLE_CHARACTERS = 160


@dataclass(frozen=True, repr=False)
class DemoSummary:
    """The table that the demo ends with.

    Attributes
    ----------
    pipeline : PipelineSummary
        A row per stage.
    report : str
        The page.
    tokens : str
        The folder of token shards.
    sample : str
        Text decoded from the tokens.
    """

    pipeline: PipelineSummary
    report: str
    tokens: str
    sample: str

    @property
    def exit_status(self) -> int:
        """0 if everything is done."""
        return self.pipeline.exit_status

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {
            **self.pipeline.to_json(),
            "report": self.report,
            "tokens": self.tokens,
            "sample": self.sample,
        }

    def __str__(self) -> str:
        return "\n".join([str(self.pipeline), "", *self._lines()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.pipeline._repr_html_() + "".join(f"<p>{html.escape(line)}</p>" for line in self._lines())

    def _lines(self) -> list[str]:
        done = [] if self.pipeline.fresh else ["Everything was done before; nothing was computed again."]
        return [
            f"decoded from the tokens: {self.sample!r}",
            f"tokens: {self.tokens}",
            f"report: {self.report}",
            *done,
        ]


def demo(
    *,
    folder: str = "demo",
    report: str = "reports/demo.html",
    scheduler: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
) -> DemoSummary:
    """Do the whole job on text from this Python installation: package descriptions, licences, docstrings.

    Example: dolma-dask demo

    Parameters
    ----------
    folder : str, optional
        Where the data goes.
    report : str, optional
        The page to write.
    scheduler : str, optional
        synchronous, threads, processes, cluster (a LocalCluster) or the address of a Dask scheduler.
    workers : int, optional
        Processes or threads; by default one per processor.
    progress : bool, optional
        Show how far each stage is.

    Returns
    -------
    DemoSummary
        Documents, text and tokens per stage, and where to look.

    Raises
    ------
    StageError
        A stage failed.
    DataError
        The tokens that were read back are not those of the documents.
    """
    place, page = Path(folder).absolute(), str(Path(report).absolute())
    asked = {"scheduler": scheduler, "workers": workers, "progress": progress}
    token = DEFAULT_SCHEDULER.set("cluster")
    try:
        with clusters.shared_cluster():
            return _run(place, page, asked)
    finally:
        DEFAULT_SCHEDULER.reset(token)


def _run(place: Path, page: str, asked: dict[str, Any]) -> DemoSummary:
    def work(*only: str) -> PipelineSummary:
        variables = {"folder": str(place), "report": page}
        return run(str(PIPELINE), variables=variables, only=only, **asked)

    collect_corpus(place)
    tokenizer = place / "tokenizer.json"
    if not tokenizer.exists():
        converted = work("convert")  # what the tokenizer is trained on
        _train(place, tokenizer)
        summary = _joined(converted, work())
    else:
        summary = work()
    tokens = str(place / "tokens")
    sample = check_tokens(str(place / "v1"), tokens, str(tokenizer))
    return DemoSummary(summary, page, tokens, sample)


def _joined(one: PipelineSummary, other: PipelineSummary) -> PipelineSummary:
    """Return one summary of two runs of a pipeline: of each stage the run in which it worked."""
    known = {stage.name: stage for stage in one.stages if stage.state in ("done", "done before")}
    stages = tuple(
        known[stage.name] if stage.name in known and stage.state != "done" else stage
        for stage in other.stages
    )
    return replace(other, stages=stages, seconds=one.seconds + other.seconds)


def _train(place: Path, tokenizer: Path) -> None:
    """Train a byte-level BPE on the documents."""
    dataset = open_dataset(str(place / "v0"))
    texts = (text for shard in dataset.shards for text in _texts(dataset.url(f"documents/{shard.path}")))
    train_tokenizer(texts, tokenizer, vocab_size=VOCABULARY)


def check_tokens(dataset_url: str, folder: str, tokenizer: str) -> str:
    """Read token shards back, compare one document of each with its text, and return a decoded sample.

    Parameters
    ----------
    dataset_url : str
        The documents.
    folder : str
        Their token shards.
    tokenizer : str
        Path of the tokenizer.

    Raises
    ------
    DataError
        Number of documents or ids differ.
    """
    dataset, arrays, engine = open_dataset(dataset_url), open_ragged(folder), load_tokenizer(tokenizer)
    first, sample = 0, ""
    for shard in dataset.shards:
        texts = _texts(dataset.url(f"documents/{shard.path}"))
        for row in {0, len(texts) // 2, len(texts) - 1} if texts else ():
            found = arrays[first + row][:-1]  # without the end token
            if not np.array_equal(found, engine.encode(_column(texts[row])).ids):
                raise DataError(
                    f"{folder}: the tokens of documents/{shard.path}, row {row}, are not those of its text."
                )
            sample = sample or decode(tokenizer, found)[:SAMPLE_CHARACTERS]
        first += len(texts)
    if first != len(arrays):
        raise DataError(f"{folder} holds {len(arrays):,} documents; expected the {first:,} of {dataset_url}.")
    return sample


def _texts(url: str) -> list[str]:
    return [text for block in DocumentFile(url, ["text"]) for text in block.batch.column("text").to_pylist()]


def _column(text: str) -> Any:
    import pyarrow as pa

    return pa.array([text], pa.large_string())


def decode(tokenizer: str, ids: Any) -> str:
    """Return the text behind token ids."""
    from tokenizers import Tokenizer

    return str(Tokenizer.from_file(tokenizer).decode(np.asarray(ids).tolist()))
