"""Signals of RedPajama-V2."""

import json
from pathlib import Path

import redpajama_oracle

STOP_WORDS = {
    language: frozenset(listed)
    for language, listed in json.loads(
        (Path(__file__).parents[3] / "dolma_dask/taggers/stop_words.json").read_text(encoding="utf-8")
    ).items()
}


def redpajama(text, metadata="{}"):
    language = json.loads(metadata).get("language")
    found = redpajama_oracle.rule_signals(text, STOP_WORDS.get(language))
    scores = {name: spans[0][2] for name, spans in found.items() if name.startswith("rps_doc_")}
    return {name: None if score is None else float(score) for name, score in scores.items()}


def redpajama_lines(text):
    found = redpajama_oracle.line_signals(redpajama_oracle.split_lines(text))
    if not text:
        found["rps_lines_start_with_bulletpoint"] = None
    return {
        name: spans and [{"start": start, "end": end, "score": float(score)} for start, end, score in spans]
        for name, spans in found.items()
    }


def redpajama_ccnet(text, metadata="{}"):
    names = (
        "length",
        "original_length",
        "nlines",
        "original_nlines",
        "language_score",
        "perplexity",
        "bucket",
    )
    record = dict.fromkeys(names) | json.loads(metadata)
    signals = redpajama_oracle.ccnet_signals(record, len(text))
    return {name: spans[0][2] for name, spans in signals.items()}


ORACLES = {
    "redpajama_v2_doc": redpajama,
    "redpajama_v2_ccnet": redpajama_ccnet,
    "redpajama_v2_lines": redpajama_lines,
}
