"""Mixes as the Dolma toolkit writes them: JSONPath over span scores, spans replaced, attributes merged; .jsonl.gz in, .jsonl.gz out."""

import json
from typing import Any

import dolma_dask as dk
from benchmarks.bench_commands import DOLMA, _dolma
from benchmarks.bench_verbs import OPTIONS, tagged
from benchmarks.harness import Goal, Job, benchmark
from dolma_dask.pipelines.dolma_mix import mix_config

KEY = "gopher_v2__gopher_v2__word_count"
INCLUDE = f"$.attributes[?(@.{KEY} && @.{KEY}[0] && @.{KEY}[0][2] > 49.5)]"
EXCLUDE = "$.attributes[?(@.gopher_v2__gopher_v2__symbol_to_word_ratio[0][2] > 0.1)]"
SPANS = [
    {
        "span": "$.attributes.char_length_with_paragraphs_v1__char_length_with_paragraphs_v1__paragraph",
        "max_score": 20,
        "replacement": "<{}>",
    }
]


def _config(job: Job, name: str, discard: list[str], **more: Any) -> dict[str, Any]:
    root = tagged(job, name)
    stream = {
        "name": "bench",
        "documents": [f"{root}/documents/*.gz"],
        "attributes": ["gopher_v2"],
        "output": {
            "path": str(job.scratch / f"out-{name}"),
            "max_size_in_bytes": 100_000_000,
            "discard_fields": discard,
        },
        "filter": {"include": [INCLUDE], "exclude": [EXCLUDE]},
        **more,
    }
    return {"streams": [stream], "processes": 1}


@benchmark("mix-jsonpath", goal=Goal("speed", 80), beside="dolma-mix-jsonpath")
def mix_jsonpath(job: Job) -> None:
    """Two JSONPath filters on span scores of gopher_v2, by the verb's own arguments."""
    options = {**OPTIONS, "include": [INCLUDE], "exclude": [EXCLUDE]}
    dk.mix(tagged(job, "warm"), to=str(job.scratch / "warm"), **options)
    dataset = tagged(job, "all")
    with job.measured(job.corpus.text_mb):
        done = dk.mix(dataset, to=str(job.scratch / "v1"), **options)
    assert job.corpus.documents > done.counts["documents_out"] > 0


@benchmark("mix-config", goal=Goal("speed", 80), beside="dolma-mix-jsonpath")
def mix_config_discarding(job: Job) -> None:
    """The same from a mixer configuration: provenance in each row, files cut by size."""
    _measure(job, ["attributes"])


@benchmark("mix-config-merge", beside="dolma-mix-merge")
def mix_config_merging(job: Job) -> None:
    """The same with the attributes written into the documents."""
    _measure(job, [])


def _measure(job: Job, discard: list[str]) -> None:
    mix_config(_config(job, "warm", discard), **OPTIONS)
    config = _config(job, "all", discard)
    with job.measured(job.corpus.text_mb):
        done = mix_config(config, **OPTIONS)
    assert job.corpus.documents > done.counts["documents_out"] > 0


@benchmark("dolma-mix-jsonpath")
def dolma_mix_jsonpath(job: Job) -> None:
    """dolma mix with the same configuration, start-up included."""
    _toolkit(job, ["attributes"])


@benchmark("dolma-mix-merge")
def dolma_mix_merge(job: Job) -> None:
    """dolma mix with the attributes written into the documents, start-up included."""
    _toolkit(job, [])


def _toolkit(job: Job, discard: list[str]) -> None:
    if DOLMA.exists():
        path = job.scratch / "mix.json"
        path.write_text(json.dumps(_config(job, "all", discard)))
        _dolma(job, job.corpus.text_mb, "-c", str(path), "mix")
