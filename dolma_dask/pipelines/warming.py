"""warm-up: compile the kernels that verbs use, once for all later processes of this installation.

Kernels are compiled for the types that they are called with, so every verb is run, on a few small documents in a temporary folder. Parts run in
processes side by side; two that need the same kernel share one compilation. Half a minute on two processors the first time, 2 s later.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from dolma_dask.clusters import check_workers, cpu_count, process_pool
from dolma_dask.options.base import WHERE, Opt, Options
from dolma_dask.options.command import command
from dolma_dask.processes import interrupts_held_back
from dolma_dask.progress import LINE_SECONDS, progress_of
from dolma_dask.results.parts import Fact
from dolma_dask.results.summary import Summary

ROWS = 24

KERNELS = 300
"""Kernels that its processes compile, or wait for, about: by these its bar moves."""

_QUIET: Any = {"scheduler": "synchronous", "progress": False}


@dataclass(frozen=True, kw_only=True)
class WarmUpOptions(Options):
    """Options of `warm_up`."""

    workers: Annotated[
        int | None,
        Opt("Processes; by default one per processor.", group=WHERE, convert=check_workers),
    ] = None


@command
def warm_up(*, options: WarmUpOptions) -> Summary:
    """Compile all kernels now, once for all later processes; else each is compiled when it is first used.

    Example: dolma-dask warm-up

    Returns
    -------
    Summary
        With the time that it took.
    """
    started = time.monotonic()
    folder = tempfile.TemporaryDirectory(prefix="dolma-dask-warm-up-")
    try:
        with (
            progress_of("warm-up", 0, len(PARTS)) as progress,
            process_pool(min(options.workers or cpu_count(), len(PARTS))) as pool,
        ):
            progress.kernels = KERNELS
            if progress.every == LINE_SECONDS:  # no bar moves
                sys.stderr.write(
                    "warm-up: compiling all kernels, once; half a minute to a minute and a quarter on two processors that are free\n"
                )
            for _ in pool.map(_do, PARTS, [f"{folder.name}/{part.__name__}" for part in PARTS]):
                progress.advance(0, 1)
    finally:
        with interrupts_held_back():  # another Ctrl-C would leave half of it
            folder.cleanup()  # if Ctrl-C comes before this, Python does it at its end
    return WarmUpSummary("warm-up", "", seconds=time.monotonic() - started)


class WarmUpSummary(Summary, frozen=True):
    """The outcome of a warm-up."""

    def facts(self) -> list[Fact]:
        return [Fact("kernels", "ready, for all processes of this installation")]


def _do(part: Callable[[str], None], folder: str) -> None:
    part(_make_dataset(folder))


def _make_dataset(folder: str) -> str:
    """Write two shards with attributes of every kind; return the root."""
    root = Path(folder, "v0")
    for shard in ("a", "b"):
        documents = [_document(shard, row) for row in range(ROWS)]
        attributes = [
            {
                "id": item["id"],
                "source": item["source"],
                "attributes": {
                    "own__own__score": [[0, len(item["text"]), row / 7]],
                    "own__own__spans": [[0, 4, 1], [5, 8, 0.25]],
                    "own__own__count": [[0, len(item["text"]), row]],
                    "nested": {"own": [[0, 4, 1.0]]},
                },
            }
            for row, item in enumerate(documents)
        ]
        more = [{**row, "attributes": {"more__more__n": [[0, 1, 1]]}} for row in attributes]
        for name, rows in (
            ("documents", documents),
            ("attributes/own", attributes),
            ("attributes/more", more),
        ):
            path = root / name / f"{shard}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(root)


def _document(shard: str, row: int) -> dict[str, Any]:
    text = f'Some w\u00f6rds \U0001f600 of "text" {row % 20} ... and\n- more \\ of it, {shard}\n' * (
        1 + row % 5
    ) + "\n" * (row % 2)
    return {
        "id": f"{shard}-{row}",
        "source": f"s{row % 2}",
        "text": text,
        "added": "2024-01-01",
        "metadata": {"n": row, "page": {"url": f"https://example.org/{row}"}},
    }


def _check_and_tag(root: str) -> None:
    from dolma_dask.taggers.base import ViewTagger
    from dolma_dask.taggers.registry import built_in
    from dolma_dask.verbs.convert.verb import convert
    from dolma_dask.verbs.tag.verb import tag
    from dolma_dask.verbs.validate.verb import validate

    convert(f"{root}/documents", to=f"{root}/converted", source="s", metadata=["n"], **_QUIET)
    own = [
        name
        for name, known in built_in().items()
        if isinstance(known, ViewTagger) and (known.tokenize or not (known.extra or known.source))
    ]
    tag(root, sorted(own), tokenizer=_train(root), **_QUIET)
    validate(root, against=f"{root}/converted", **_QUIET)
    _look_at_many_bytes()


def _look_at_many_bytes() -> None:
    """Call the kernels that few bytes do not need."""
    import pyarrow as pa

    from dolma_dask.formats.json import strings
    from dolma_dask.text import columns

    text = "\u00f6\n" * max(strings.MANY_BYTES, columns.MANY_BYTES)
    strings.is_utf8(np.frombuffer(text.encode(), np.uint8))
    columns.code_point_lengths(pa.array([text], pa.large_string()))


def _train(root: str) -> str:
    """Write a tokenizer; return its path."""
    from dolma_dask.testing.tokenizer import train_tokenizer

    path = f"{root}/tokenizer.json"
    train_tokenizer([_document("a", row)["text"] for row in range(ROWS)], path, vocab_size=300)
    return path


def _compare(root: str) -> None:
    from dolma_dask.questions.what_if.question import what_if
    from dolma_dask.verbs.block.verb import block
    from dolma_dask.verbs.dedupe.verb import dedupe
    from dolma_dask.verbs.filter.verb import filter
    from dolma_dask.verbs.quantiles.verb import quantiles

    listed = Path(root, "ids.txt")
    listed.write_text("a-1\nb-2\n")
    dedupe(root, **_QUIET)
    dedupe(root, index=str(Path(root).parent / "index"), name="known", **_QUIET)
    ngrams: Any = {"unit": "paragraph", "ngram": 2, "bloom": f"{root}/seen.bloom", **_QUIET}
    dedupe(root, **ngrams, name="ngrams")
    dedupe(root, **ngrams, name="seen", read_only=True)
    block(root, str(listed), name="listed", **_QUIET)
    quantiles(root, ["own__own__score", "own__own__count"], level="regular", **_QUIET)
    filter(root, **_QUIET)
    what_if(root, "regular", to=f"{root}/what_if.html", **_QUIET)


def _select(root: str) -> None:
    from dolma_dask.verbs.mix.verb import mix

    span = {"span": "$.attributes.own__own__spans", "min_score": 0.5, "replacement": "|||{}|||"}
    mix(
        root,
        to=f"{root}/rule",
        where="own__own__score < 3 and metadata.n >= 0 and source in ('s0', 's1')",
        include=["$.attributes[?(@.own__own__count[0][2] < 20)]"],
        replace=[span],
        discard_fields=["added"],
        provenance=True,
        sample=0.9,
        **_QUIET,
    )
    mix(root, to=f"{root}/some", where="source == 's0'", **_QUIET)  # every other row
    mix(root, to=f"{root}/merged", attributes=["own", "more"], merge_attributes=True, shuffle=True, **_QUIET)


def _attach(root: str) -> None:
    from dolma_dask.verbs.attach import attach

    for path in sorted(Path(root, "documents").iterdir()):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        named = [{**row, "id": f"{path.stem}.json.gz/{number}"} for number, row in enumerate(rows)]
        signals = {"rps_doc_word_count": [[0, 9, 3]], "rps_lines_num_words": [[0, 4, 1], [4, 9, None]]}
        tables = [{"id": row["id"], "quality_signals": signals} for row in named]
        for to, lines in (("published/documents", named), ("signals", tables)):
            copy = Path(root, to, path.name if lines is named else f"{path.stem}.signals.json")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    attach(f"{root}/published", f"{root}/signals", name="rps", **_QUIET)


def _tokenize(root: str) -> None:
    from dolma_dask.verbs.hdf5.verb import hdf5
    from dolma_dask.verbs.ragged import ragged

    end: Any = {"tokenizer": _train(root), "eos": "<|endoftext|>", **_QUIET}
    ragged(root, f"{root}/tokens", **end)
    hdf5(root, f"{root}/packed", max_seq_length=64, use_ftfy=True, wikitext_detokenize=True, **end)
    hdf5(root, f"{root}/rows", max_seq_length=64, pack_sequences=False, split_text_to_tokenize=True, **end)
    hdf5(root, f"{root}/whole", max_seq_length=64, mode="LMData_VSL", shuffle=True, **end)
    _read_rows(f"{root}/tokens")


def _read_rows(folder: str) -> None:
    """Read rows of token shards as a training loop does."""
    from dolma_dask.loaders.ragged import open_ragged
    from dolma_dask.loaders.token_dataset import TokenDataset

    list(open_ragged(folder).__getitems__([3, 1]))
    kinds: Any = (
        {"rows": "windows", "order": "permuted"},
        {"rows": "stream", "order": "blocks", "eos": 0, "labels": "shifted"},
        {"rows": "best_fit", "order": "written"},
    )
    for kind in kinds:
        TokenDataset([folder, folder], 32, weights=[2, 1], **kind).__getitems__([0, 1, 2])


def _find_similar(root: str) -> None:
    from dolma_dask.exchange.ordering import FEW, sort_words, without_lone
    from dolma_dask.verbs.dedupe.verb import dedupe

    fuzzy: Any = {"how": "fuzzy", "ngram": 2, **_QUIET}
    choice: Any = {"where": "metadata.n >= 0", "within": "source", "keep": "newest", "rank": "added"}
    dedupe(root, **fuzzy, **choice, name="chosen", verify="ngrams")
    for scheme in ("dolma_dask", "datasketch", "datasketch_legacy", "redpajama_v2"):
        dedupe(root, **fuzzy, name=scheme, scheme=scheme, verify="none")
    dedupe(root, **fuzzy, name="characters", scheme="datasketch", unit="char")
    dedupe(root, **fuzzy, name="known", index=str(Path(root).parent / "index"))
    rows = np.random.default_rng(0).integers(0, 300, (4 * FEW, 3), np.uint64)  # fewer need no kernels
    sort_words(without_lone(rows, np.array([len(rows)])))


PARTS = (_find_similar, _check_and_tag, _tokenize, _select, _compare, _attach)
"""Parts that run side by side; the longest to compile first."""
