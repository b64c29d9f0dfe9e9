"""demo: the whole job on real text from this Python installation, without any download.

collect -> convert -> validate -> tag -> quantiles -> dedupe -> mix -> ragged -> report, on a LocalCluster that is started only if there is work; then the tokens are read
back and a sample is decoded. The second run finds everything done and says so at once.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from dolma_dask import clusters
from dolma_dask.dataset import open_dataset
from dolma_dask.display import text_table
from dolma_dask.errors import DataError
from dolma_dask.io.documents import DocumentFile
from dolma_dask.loaders.ragged import open_ragged
from dolma_dask.settings import DEFAULT_SCHEDULER
from dolma_dask.stages.convert import convert
from dolma_dask.stages.dedupe import dedupe
from dolma_dask.stages.mix import mix
from dolma_dask.stages.options import RunArgs, checked
from dolma_dask.stages.quantiles import quantiles
from dolma_dask.stages.ragged import ragged
from dolma_dask.stages.report import report as write_report
from dolma_dask.stages.tag import tag
from dolma_dask.stages.validate import validate
from dolma_dask.summary import Summary
from dolma_dask.testing.corpus import Manifest, collect_corpus
from dolma_dask.testing.tokenizer import END_OF_TEXT, train_tokenizer
from dolma_dask.tokens.engine import load_tokenizer

TAGGERS = ("char_length_v1", "whitespace_tokenizer_v1", "gopher_v2")

WHERE = "word_count >= 50 and symbol_to_word_ratio <= 0.1 and fraction_of_words_with_alpha_character >= 0.7 and exact is None"
"""Three of the Gopher rules (Rae et al. 2021, table A1); the limit for words with letters is looser, for reference texts are full of
signs. And no copies."""

SIGNALS = ("word_count", "symbol_to_word_ratio", "fraction_of_words_with_alpha_character")

VOCABULARY = 8000
SAMPLE_CHARACTERS = 160


@dataclass(frozen=True, repr=False)
class DemoSummary:
    """The table that the demo ends with.

    Attributes
    ----------
    stages : tuple of Summary
        One per verb call, in order.
    report : str
        The page.
    tokens : str
        The folder of token shards.
    sample : str
        Text decoded from the tokens.
    fresh : bool
        Whether anything was left to do.
    """

    stages: tuple[Summary, ...]
    report: str
    tokens: str
    sample: str
    fresh: bool

    @property
    def exit_status(self) -> int:
        """0 if everything is done."""
        return max(stage.exit_status for stage in self.stages)

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {
            "stages": [stage.to_json() for stage in self.stages],
            "report": self.report,
            "tokens": self.tokens,
            "sample": self.sample,
        }

    def __str__(self) -> str:
        rows = [
            ("stage", "documents", "text MB", "tokens", "seconds"),
            *(_row(stage) for stage in self.stages),
        ]
        table = text_table(rows)
        done = "" if self.fresh else "\nEverything was done before; nothing was computed again."
        return (
            "\n".join(
                [
                    *table,
                    "",
                    f"decoded from the tokens: {self.sample!r}",
                    f"tokens: {self.tokens}",
                    f"report: {self.report}",
                ]
            )
            + done
        )

    __repr__ = __str__


def _row(stage: Summary) -> tuple[str, str, str, str, str]:
    counts = stage.counts
    documents = counts.get("documents_out", counts.get("documents_in", counts.get("documents")))
    text = counts.get("text_bytes_out", counts.get("text_bytes"))
    return (
        stage.verb,
        "" if documents is None else f"{documents:,.0f}",
        "" if text is None else f"{text / 1e6:,.2f}",
        f"{counts['tokens']:,.0f}" if "tokens" in counts else "",
        f"{stage.seconds:,.1f}",
    )


def demo(
    *, folder: str = "demo", report: str = "reports/demo.html", **options: Unpack[RunArgs]
) -> DemoSummary:
    """Do the whole job on text from this Python installation: package descriptions, licences, docstrings.

    Example: dolma-dask demo

    Parameters
    ----------
    folder : str, optional
        Where the data goes.
    report : str, optional
        The page to write.

    Returns
    -------
    DemoSummary
        Documents, text and tokens per stage, and where to look.

    Raises
    ------
    DataError
        The tokens that were read back are not those of the documents.
    UsageError
        An argument is unknown, or ``only`` has nothing in it.
    """
    options = checked(demo, options, RunArgs)
    place = Path(folder).absolute()
    token = DEFAULT_SCHEDULER.set("cluster")
    try:
        with clusters.shared_cluster():
            return _run(place, str(Path(report).absolute()), options)
    finally:
        DEFAULT_SCHEDULER.reset(token)


def _run(place: Path, page: str, options: RunArgs) -> DemoSummary:
    v0, v1, tokens = str(place / "v0"), str(place / "v1"), str(place / "tokens")
    manifest = collect_corpus(place)
    converted = _convert(manifest, place, v0, options)
    tokenizer = _tokenizer(place, v0)
    checked_all = validate(v0, attributes=[], **options)
    tagged = tag(v0, TAGGERS, **options)
    cuts = quantiles(v0, SIGNALS, by="source", level="regular", **options)
    marked = dedupe(v0, **options)
    mixed = mix(v0, to=v1, where=WHERE, **options)
    packed = ragged(v1, tokens, tokenizer=tokenizer, eos=END_OF_TEXT, name="demo", **options)
    stages = [converted, checked_all, tagged, cuts, marked, mixed, packed]
    fresh = any(stage.done for stage in stages) or not Path(page).exists()
    if fresh:
        stages.append(write_report(v1, to=page, tokens=[tokens], title="dolma_dask demo", **options))
    sample = check_tokens(v1, tokens, tokenizer)
    return DemoSummary(tuple(stages), page, tokens, sample, fresh)


def _convert(manifest: Manifest, place: Path, v0: str, options: RunArgs) -> Summary:
    """Convert each kind of raw file with its own mapping into one dataset; return the sum."""
    parts = []
    for kind in manifest.sets:
        mapping = kind.mapping
        parts.append(
            convert(
                str(place / "raw" / kind.kind),
                to=v0,
                under=kind.kind,
                id=mapping.id,
                text=mapping.text,
                source_field=mapping.source,
                source=mapping.source_name,
                **options,
            )
        )
    names = {name for part in parts for name in part.counts}
    counts = {name: sum(part.counts.get(name, 0) for part in parts) for name in sorted(names)}
    return replace(
        parts[0],
        counts=counts,
        done=sum(part.done for part in parts),
        skipped=sum(part.skipped for part in parts),
        seconds=sum(part.seconds for part in parts),
    )


def _tokenizer(place: Path, v0: str) -> str:
    """Train a byte-level BPE on the documents, once."""
    path = place / "tokenizer.json"
    if not path.exists():
        dataset = open_dataset(v0)
        texts = (
            text
            for shard in dataset.shards
            for block in DocumentFile(dataset.url(f"documents/{shard.path}"), ["text"])
            for text in block.batch.column("text").to_pylist()
        )
        train_tokenizer(texts, path, vocab_size=VOCABULARY)
    return str(path)


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
