"""estimate: the run is as estimated, whatever share of the texts are copies, and nothing real is written before it."""

import gzip
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import CorruptFileError, TrialError, UsageError
from dolma_dask.io.publish import writer_space
from dolma_dask.pipelines.estimate import trial
from dolma_dask.pipelines.estimate.answer import fitting
from dolma_dask.pipelines.estimate.trial import Walls, line
from dolma_dask.pipelines.pipeline import run
from dolma_dask.pipelines.stages import StagePlan

HERE = {"scheduler": "synchronous", "progress": False}
COPIES = 3


def words(count, seed):
    """Return a text of random words."""
    draw = random.Random(seed)
    return " ".join(f"word{draw.randrange(500)}" for _ in range(count))


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """The current folder, with 400 texts of many sizes, each three times with new ids, in twelve raw files; and some notes."""
    texts = [words(5 + number % 97, number) for number in range(400)]
    for copy in range(COPIES):
        for part in range(4):
            rows = [{"key": f"{copy}-{n}", "body": {"text": texts[n]}} for n in range(part, 400, 4)]
            path = tmp_path / f"raw/{copy}/{part}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "notes").mkdir()
    for number in range(9):  # put together by `convert`
        (tmp_path / f"notes/{number}.md").write_text(words(40, -number))
    (tmp_path / "p.yaml").write_text(
        """\
stages:
  - convert: {inputs: raw, to: out/v0, source: s, id: key, text: body.text, under: raw}
  - convert: {inputs: notes, to: out/v0, source: notes, under: notes}
  - tag: {dataset: out/v0, taggers: [char_length_v1]}
  - dedupe: {dataset: out/v0}
  - mix: {dataset: out/v0, to: out/v1, where: exact is None and char_length_v1__char_length_v1__length >= 60}
"""
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(folder):
    """Sizes of files, without those of runs."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return [path.stat().st_size for path in paths if not {"_journal", "_work"} & set(path.parts)]


def contents(folder):
    """Bytes of all files, by path."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_run_is_as_estimated(corpus, capsys):
    scratch = corpus / "scratch"
    dead = scratch / f"dolma-dask-estimate-{writer_space()}-999999999-x"
    elsewhere = scratch / "dolma-dask-estimate-other_1-999999999-x"
    dead.mkdir(parents=True)
    elsewhere.mkdir()
    before = contents(corpus)
    assert cli.main(["estimate", "p.yaml", "--sample-bytes", "80000", "--scratch", "scratch", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(scratch.iterdir()) == [
        elsewhere
    ]  # not even that of an estimate of this machine that was killed
    after = contents(corpus)
    assert {path for path in after if path.name != "estimate.json"} == before.keys()
    assert (
        before.items() <= after.items()
    )  # nothing is changed, nothing is written but what `status` compares with
    run("p.yaml", **HERE)
    sizes = made(corpus / "out")
    assert answer["all"]["files"] == len(sizes)
    assert answer["slurm"]["command"] == "dolma-dask run p.yaml --cluster allocation"
    assert answer["all"]["bytes"] == pytest.approx(sum(sizes), rel=0.3)
    by_name = {stage["name"]: stage for stage in answer["stages"]}
    kept = sum(made(corpus / "out/v1"))
    assert by_name["mix"]["bytes"] == pytest.approx(kept, rel=0.3)  # two thirds of the texts are copies
    compared = {row.verb: row for row in dk.status("out/v0").estimated}
    assert compared["tag"].files == compared["tag"].files_expected == 13
    assert compared["tag"].cpu > 0
    assert compared["dedupe"].cpu > 0
    # begins at a dataset, which has the attributes already
    assert cli.main(["estimate", "p.yaml", "--only", "tag", "mix", "--scratch", "scratch"]) == 0
    assert "mix" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 7])
def test_a_sample_has_its_share_of_texts_that_are_alike(tmp_path, monkeypatch, seed):
    """A twentieth of documents drawn one by one would hardly hold two of the three that are alike, and the mix would keep nearly all of them."""
    monkeypatch.chdir(tmp_path)
    Path("raw").mkdir()
    texts = [words(60 + number % 97, number) for number in range(400)]
    for copy in range(COPIES):
        changed = [f"{text} more {copy}" for text in texts]
        table = pa.table({"id": [f"{copy}-{n}" for n in range(400)], "text": changed})
        pq.write_table(table, f"raw/{copy}.parquet")
    Path("p.yaml").write_text(
        """\
stages:
  - convert: {inputs: raw, to: v0, source: s}
  - dedupe: {dataset: v0, how: fuzzy}
  - mix: {dataset: v0, to: v1, where: fuzzy is None}
"""
    )
    by_name = {
        s.name: s for s in dk.estimate("p.yaml", sample_bytes=40_000, seed=seed, progress=False).stages
    }
    assert by_name["convert"].files == COPIES
    assert by_name["mix"].bytes == pytest.approx(by_name["convert"].bytes / COPIES, rel=0.3)


def test_noise_is_not_multiplied():
    """A stage that hardly grows: what two trials of the same differ by, times 33, would be most of the estimate."""
    read = {"small": 10.0, "large": 310.0, "whole": 10_000.0}
    exact = line(read, {"small": 3.0, "large": 9.0})
    assert (exact.rate, exact.spread) == (0.02, 0)
    assert (exact.fixed, exact.whole) == pytest.approx((2.8, 202.8))
    values = {"small": 1.2, "large": 1.4}
    assert line(read, values).whole > 7
    noisy = line(read, values, noise=0.2)
    assert noisy.whole == pytest.approx(1.4)
    assert noisy.spread > 0.5  # but the doubt is told
    assert line(read, {**values, "large": 9.2}, noise=0.2).rate == pytest.approx(8 / 300, rel=0.01)


def test_a_request_has_as_many_workers_as_gain_anything():
    quick = [Walls(1, 600, 600), Walls(2, 400, 600)]
    assert fitting(quick, 10**9).lines()[2:] == [
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem=2048M",
        "#SBATCH --time=00:25:00",
    ]
    long = [Walls(1 << n, max(80_000 / 2**n, 10_000), 80_000) for n in range(8)]
    assert (fitting(long, 10**9).jobs, fitting(long, 10**9).cores) == (1, 8)  # a file of its own decides


def test_an_error_that_nobody_foresaw_is_told_with_its_place(tmp_path, monkeypatch):
    def fails(stage, **options):
        return max([])

    monkeypatch.setattr(StagePlan, "call", fails)
    with pytest.raises(
        TrialError, match=r"'page' failed .* ValueError: max.* raised by report .*fails \(test_est"
    ):
        trial._try(StagePlan("page", "report", {}), tmp_path)


@pytest.mark.slow
def test_what_cannot_be_estimated(corpus):
    for options, said in (
        ({"sample_bytes": 0}, "sample_bytes=0"),
        ({"workers": [0]}, "workers=0"),
        ({"only": ["mix"]}, "out/v0"),
        ({"sample_bytes": 60}, "can only be taken whole"),
    ):
        with pytest.raises(UsageError, match=said):
            dk.estimate("p.yaml", progress=False, **options)
    Path("p.yaml").write_text("stages:\n  - convert: {inputs: raw, to: out/v0, text: nowhere}\n")
    with pytest.raises(TrialError, match=r"'convert' failed on the sample.*nowhere") as failed:
        dk.estimate("p.yaml", progress=False, scratch="scratch")
    assert "scratch" not in str(failed.value)  # nobody finds that any more
    assert list(Path("scratch").iterdir()) == []
    Path("deadly.py").write_text("import os\n\n\ndef clean(text):\n    os._exit(9)\n")
    Path("p.yaml").write_text(
        "stages:\n  - convert: {inputs: raw, to: out/v0, source: s, id: key, text: body.text}\n"
        "  - transform: {dataset: out/v0, to: out/v1, function: deadly.py:clean}\n"
    )
    with pytest.raises(TrialError, match=r"ended in stage 'transform'"):
        dk.estimate("p.yaml", progress=False)
    Path("p.yaml").write_text("stages:\n  - convert: {inputs: raw, to: out/v0, text: nowhere}\n")
    Path("raw/damaged.parquet").write_bytes(b"PAR1 and nonsense")
    with pytest.raises(CorruptFileError, match=r"damaged.parquet"):
        dk.estimate("p.yaml", progress=False)
    Path("p.yaml").write_text("stages:\n  - convert: {inputs: none, to: out/v0}\n")
    Path("none").mkdir()
    Path("none/a.jsonl.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(UsageError, match="none holds no records in 1 file"):
        dk.estimate("p.yaml", progress=False)


@pytest.mark.slow
def test_sigterm_leaves_nothing(corpus):
    """Batch systems send it before the end."""
    command = [
        sys.executable,
        "-m",
        "dolma_dask",
        "estimate",
        "p.yaml",
        "--scratch",
        "scratch",
        "--no-progress",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not list(Path("scratch").glob("*/*/out")):
            time.sleep(0.01)
        process.terminate()
    assert process.returncode == 130
    assert list(Path("scratch").iterdir()) == []


@pytest.mark.slow
def test_flags_that_are_there_and_that_no_document_has(tmp_path, monkeypatch):
    """Rows without any flag do not tell its name: the journal does, also beside the sample."""
    monkeypatch.chdir(tmp_path)
    Path("raw.jsonl").write_text("".join(json.dumps({"id": n, "text": words(30, n)}) + "\n" for n in "abc"))
    dk.convert("raw.jsonl", to="v0", source="s", **HERE)
    dk.dedupe("v0", **HERE)
    Path("p.yaml").write_text("stages:\n  - mix: {dataset: v0, to: v1, where: exact is None}\n")
    answer = dk.estimate("p.yaml", progress=False)
    dk.mix("v0", to="v1", where="exact is None", **HERE)
    card = (tmp_path / "v1/README.md").stat().st_size
    assert answer.files == 2
    assert answer.bytes == made(tmp_path / "v1/documents")[0] + card
