"""hdf5 in one process, past start-up: .jsonl.gz in, rows of 2,048 tokens out, in each of its modes; and its second pass alone."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dolma_dask as dk
from benchmarks.bench_verbs import OPTIONS, tokenizer_path
from benchmarks.harness import Goal, Job, benchmark
from dolma_dask.io.documents import DocumentFile
from dolma_dask.outputs.hdf5.options import RowOptions
from dolma_dask.outputs.hdf5.rows import RowPlan, RowsStage
from dolma_dask.outputs.hdf5.staging import StagedTokens, StagingWriter
from dolma_dask.sinks.segments import owners_of
from dolma_dask.sinks.sink import DocumentRows
from dolma_dask.tokens.engine import load_tokenizer
from dolma_dask.tokens.modes import Mode
from dolma_dask.verbs.hdf5.verb import hdf5

COPIES = 40
"""Number of times that the second pass alone packs the tokens of one file."""

RECORD = 2000
"""Characters of the longest prompt with its completion: less than a row."""

SIGNS = {"fim_prefix_tok": "!", "fim_middle_tok": "?", "fim_suffix_tok": "#"}
"""Tokens that every vocabulary has, in place of those of FIM."""

PAIR = {"prompt_key": "metadata.prompt", "completion_key": "metadata.answer"}
PREFERENCE = {
    "prompt_key": "metadata.prompt",
    "chosen_key": "metadata.answer",
    "rejected_key": "metadata.worse",
}


@benchmark("hdf5", goal=Goal("speed", 2.5), beside="ragged")
def hdf5_plain(job: Job) -> None:
    """Documents to packed rows (two of the eight files); the tool it replaces: 1.0 to 1.5 in all of its ways (spec, section 11)."""
    _hdf5(job, use_ftfy=False)


@benchmark("hdf5-ftfy", beside="hdf5")
def hdf5_repaired(job: Job) -> None:
    """The same with ftfy; the tool it replaces: 0.9 to 1.0."""
    _hdf5(job, use_ftfy=True)


@benchmark("hdf5-vsl", goal=Goal("ratio", 1.5), beside="hdf5")
def hdf5_packed(job: Job) -> None:
    """The same documents, whole, several in a row: five channels."""
    _hdf5(job, mode="LMData_VSL")


@benchmark("hdf5-fim", goal=Goal("ratio", 1.5), beside="hdf5")
def hdf5_fim(job: Job) -> None:
    """Rows of LMData whose documents are permuted at their defaults."""
    _hdf5(job, mode="FIM", **SIGNS)


@benchmark("hdf5-summarization", goal=Goal("ratio", 1.5), beside="hdf5")
def hdf5_pairs(job: Job) -> None:
    """The same texts as prompts with completions, a row for each."""
    _hdf5_of_records(job, ("prompt", "answer"), mode="Summarization", **PAIR)


@benchmark("hdf5-summarization-vsl", goal=Goal("ratio", 1.5), beside="hdf5")
def hdf5_packed_pairs(job: Job) -> None:
    """The same pairs, several in a row."""
    _hdf5_of_records(job, ("prompt", "answer"), mode="Summarization_VSL", **PAIR)


@benchmark("hdf5-dpo", goal=Goal("ratio", 1.5), beside="hdf5")
def hdf5_preferences(job: Job) -> None:
    """The same prompts, each with an answer that is preferred to that of the prompt before; the text of all three counts."""
    _hdf5_of_records(job, ("prompt", "answer", "worse"), mode="DPO", **PREFERENCE)


@benchmark("hdf5-shuffled", beside="hdf5")
def hdf5_shuffled(job: Job) -> None:
    """The same rows in a random order."""
    _hdf5(job, shuffle=True)


def _hdf5(job: Job, **more: Any) -> None:
    options = {"tokenizer": tokenizer_path(job.corpus), **more, **OPTIONS}
    hdf5(job.corpus.dataset("warm"), str(job.scratch / "warm"), **options)
    with job.measured(job.corpus.few_mb):
        done = hdf5(job.corpus.dataset("few"), str(job.scratch / "out"), **options)
    assert done.counts["documents_out"] == job.corpus.few_documents


def _hdf5_of_records(job: Job, fields: tuple[str, ...], **more: Any) -> None:
    options = {"tokenizer": tokenizer_path(job.corpus), **more, **OPTIONS}
    _write_records(job, "warm", fields)
    size = _write_records(job, "few", fields)
    hdf5(str(job.scratch / "warm"), str(job.scratch / "warm-out"), **options)
    with job.measured(size):
        hdf5(str(job.scratch / "few"), str(job.scratch / "out"), **options)


def _write_records(job: Job, name: str, fields: tuple[str, ...]) -> float:
    """Write a dataset of records whose texts are those of a dataset; return MB of text in their fields."""
    folder, size, worse = job.scratch / name / "documents", 0, "no"
    folder.mkdir(parents=True)
    for path in map(Path, job.corpus.files(name)):
        with gzip.open(folder / path.name, "wt", 6, encoding="utf-8") as file:
            for number, text in enumerate(_pieces(path)):
                half = len(text) // 2
                metadata = {"prompt": text[:half], "answer": text[half:], "worse": worse}
                worse = text[half:]
                size += sum(len(metadata[field].encode()) for field in fields)
                kept = {field: metadata[field] for field in fields}
                row = {"id": f"{path.name}-{number}", "source": "s", "text": "", "metadata": kept}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return size / 1e6


def _pieces(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            text = json.loads(line)["text"]
            # one character has no half
            yield from (text[at : at + RECORD] for at in range(0, len(text) - 1, RECORD))


@benchmark("mix-tokens", beside="mix-then-tokens")
def mix_to_tokens(job: Job) -> None:
    """Documents, token arrays and rows of the same documents from one reading (two of the eight files)."""
    _mix(job, "warm", "warm")
    with job.measured(job.corpus.few_mb):
        _mix(job, "few", "out")


def _mix(job: Job, name: str, to: str) -> None:
    wish = {"tokenizer": tokenizer_path(job.corpus)}
    place = job.scratch / to
    arrays, rows = {"to": str(place / "tokens"), **wish}, {"to": str(place / "rows"), **wish}
    dk.mix(job.corpus.dataset(name), to=str(place / "v1"), ragged=arrays, hdf5=rows, **OPTIONS)


@benchmark("mix-then-tokens")
def mix_then_tokens(job: Job) -> None:
    """The same files by three verbs, of which each reads the documents and two encode them."""
    _one_by_one(job, "warm", "warm")
    with job.measured(job.corpus.few_mb):
        _one_by_one(job, "few", "out")


def _one_by_one(job: Job, name: str, to: str) -> None:
    options = {"tokenizer": tokenizer_path(job.corpus), **OPTIONS}
    place = job.scratch / to
    made = dk.mix(job.corpus.dataset(name), to=str(place / "v1"), **OPTIONS)
    dk.ragged(made, str(place / "tokens"), **options)
    hdf5(made, str(place / "rows"), **options)


@benchmark("hdf5-rows", unit="ids")
def rows_alone(job: Job) -> None:
    """Tokens to files, second pass alone, text lengths included; MB of token ids as int32."""
    path = str(tokenizer_path(job.corpus))
    mode = RowOptions(tokenizer=path).build(load_tokenizer(path))
    folder = str(job.scratch / "staging file")
    warm, *parts = [
        _stage(mode, folder, job.corpus.files("warm")[0], 0, 1),
        _stage(mode, folder, job.corpus.files("few")[0], 1, COPIES),
    ]
    _write(job, mode, folder, (warm,), "warm")
    with job.measured(4 * sum(part.tokens for part in parts) / 1e6):
        _write(job, mode, folder, tuple(parts), "out")


def _stage(mode: Mode, folder: str, path: str, number: int, copies: int) -> StagedTokens:
    """Write the tokens of the first documents of a file, some times over."""
    block = next(iter(DocumentFile(path, ["id", "source", "text"])))
    tokens, _ = mode.recipe.encode(block.batch.column("text"))
    owners = owners_of(DocumentRows(block.batch, np.arange(block.num_rows)), path)
    with StagingWriter(folder, number, mode) as writer:
        for _ in range(copies):
            writer.write(tokens, owners)
    checksums = (file.checksum for file in writer.files)
    return StagedTokens(number, writer.tokens, copies * len(tokens.lengths), *checksums)


def _write(job: Job, mode: Mode, folder: str, parts: tuple[StagedTokens, ...], name: str) -> None:
    plan = RowPlan(mode, parts, ())
    stage = RowsStage(str(job.scratch / name), folder, mode, plan.tokens)
    for number, work in enumerate(plan.files(50_000)):
        stage.run_shard(stage.task(number, work, ""))
