"""The pipeline for users of RedPajama-V2 on published documents: ids, exact duplicates and bounds are those of the chain on LUMI."""

import gzip
import json
from pathlib import Path

import pytest

from dolma_dask.config.pipeline import run
from dolma_dask.dataset import open_dataset

pytestmark = pytest.mark.conformance

CONFIG = Path(__file__).resolve().parents[2] / "configs/redpajama_v2.yaml"
METRICS = {
    "metadata.nlines": "number_of_lines",
    "metadata.length": "number_of_characters",
    "metadata.language_score": "language_identification",
    "metadata.perplexity": "perplexity",
}
ENDS = {">": "lower", "<": "upper"}


@pytest.fixture(scope="module")
def out(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run over everything that lies beside the documents too."""
    folder = tmp_path_factory.mktemp("redpajama")
    variables = {"raw": str(shared / "conformance/rpv2/documents"), "out": str(folder)}
    run(str(CONFIG), variables=variables, scheduler="synchronous", progress=False)
    return folder


def ids_of(root: Path) -> list[str]:
    dataset = open_dataset(str(root))
    paths = [root / "documents" / shard.path for shard in dataset.shards]
    return [
        json.loads(line)["id"] for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()
    ]


def test_ids_are_the_published_ones(shared: Path, out: Path) -> None:
    signals = sorted((shared / "conformance/rpv2/quality_signals").rglob("*.signals.json.gz"))
    published = [
        json.loads(line)["id"] for path in signals for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    ids = ids_of(out / "v0")
    assert len(published) == 488
    assert set(published) < set(ids), "signals lack the record whose perplexity is null"
    assert len(ids) == len(set(ids)) == 489


def test_bounds_are_those_of_the_chain(shared: Path, tmp_path: Path) -> None:
    """Its quantiles are of documents with lines and a perplexity: on others its scripts end."""
    folder = shared / "conformance/rpv2"
    for path in (folder / "documents").rglob("*.json.gz"):
        rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        kept = [row for row in rows if row["raw_content"] and row["perplexity"] is not None]
        copy = tmp_path / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in kept).encode()))
    variables = {"raw": str(tmp_path / "documents"), "out": str(tmp_path / "out")}
    run(str(CONFIG), variables=variables, scheduler="synchronous", progress=False)
    chain = json.loads((folder / "quality_filter/thresholds_regular.json").read_text())
    bounds = json.loads((tmp_path / "out/v0/quantiles/quantiles.regular.json").read_text())["bounds"]
    for language in ("de", "es", "fr", "it", "en"):
        for signal, metric in METRICS.items():
            expected = {ENDS[sign]: float(value) for sign, value in chain[language][metric].items()}
            found = {end: value for end, value in bounds[signal][language].items() if value is not None}
            assert found == pytest.approx(expected, rel=1e-12), (language, signal)


def test_ids_do_not_depend_on_the_folder_that_is_given(shared: Path, tmp_path: Path) -> None:
    folder = shared / "conformance/rpv2"
    for raw in ("documents/2022-49/0000/de_head.json.gz", "documents/2022-49", "documents"):
        out = tmp_path / raw.replace("/", "-")
        run(
            str(CONFIG),
            variables={"raw": str(folder / raw), "out": str(out)},
            only=["convert"],
            scheduler="synchronous",
            progress=False,
        )
        assert "2022-49/0000/de_head.json.gz/0" in ids_of(out / "v0")
