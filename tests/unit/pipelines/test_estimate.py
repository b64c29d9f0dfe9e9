"""estimate: a sample keeps its share of bytes and of copies, and the whole is what the stages then do."""

import gzip
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import CorruptFileError, TrialError, UsageError
from dolma_dask.io.publish import writer_space
from dolma_dask.pipelines.estimate.entries import Entry
from dolma_dask.pipelines.estimate.model import Extent, Line, Walls
from dolma_dask.pipelines.estimate.records import TextKeys, near_keys
from dolma_dask.pipelines.estimate.sample import choose, scan_entries, write_samples
from dolma_dask.pipelines.estimate.slurm import fitting
from dolma_dask.pipelines.pipeline import run

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


@pytest.mark.slow
def test_the_run_is_as_estimated(corpus, capsys):
    scratch = corpus / "scratch"
    dead = scratch / f"dolma-dask-estimate-{writer_space()}-999999999-x"
    elsewhere = scratch / "dolma-dask-estimate-other_1-999999999-x"
    dead.mkdir(parents=True)
    elsewhere.mkdir()
    assert cli.main(["estimate", "p.yaml", "--sample-bytes", "80000", "--scratch", "scratch", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(scratch.iterdir()) == [
        elsewhere
    ]  # not even that of an estimate of this machine that was killed
    assert made(corpus / "out") == []
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


def test_a_sample_keeps_copies_together_and_its_share(corpus):
    (scanned,) = scan_entries([Entry("raw", 0, is_dataset=False)], TextKeys(), 7, 10**9, lambda _: None)
    keys = np.concatenate([one.keys for one in scanned.found])
    sizes = np.concatenate([one.sizes for one in scanned.found])
    assert len(np.unique(keys)) == 400
    choose([scanned], int(sizes.sum() // 5), 7)
    drawn = np.concatenate(scanned.parts) & 2 > 0
    counts = np.unique(keys[drawn], return_counts=True)[1]
    assert set(counts) == {COPIES}
    assert sizes[drawn].sum() == pytest.approx(sizes.sum() / 5, rel=0.1)
    samples = write_samples(scanned, ["tiny", "many", "large"])
    assert [one.files for one in samples] == [2, 9, 2]  # the few of the tiny one lie in nine
    lines = [line for path in Path("large").rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert sum(len(line) + 1 for line in lines) == samples[2].bytes
    assert {json.loads(line)["key"].split("-")[0] for line in lines} == {"0", "1", "2"}


def test_texts_that_are_alike_share_a_number():
    near = near_keys(5, "word")
    texts = [words(200, seed) for seed in range(50)]
    changed = [f"{text} more" for text in texts]
    assert np.mean(near(texts) == near(changed)) > 0.9
    assert not np.any(TextKeys()(texts) == TextKeys()(changed))
    assert np.array_equal(near(["", "..."]), TextKeys()(["", "..."]))  # without words they have no n-grams


LINE = Extent(
    {"tiny": 10.0, "many": 10.0, "large": 310.0},
    {"tiny": 2, "many": 12, "large": 5},
    10_000.0,
    100,
    5.0,
    100.0,
    "a",
)


def test_a_line_through_three_samples():
    values = {name: 3 + 4 * LINE.files_sampled[name] + 2 * size for name, size in LINE.sampled.items()}
    line = Line.through(LINE, values)
    assert (line.fixed, line.per_file, line.rate, line.spread) == (3, 4, 2, 0)
    assert line.of(LINE) == 20_403


def test_noise_is_not_multiplied():
    """A stage that hardly grows: what two trials of the same differ by, times 33, would be most of the estimate."""
    values = {"tiny": 1.2, "many": 1.3, "large": 1.4}
    assert Line.through(LINE, values).of(LINE) > 7
    noisy = Line.through(LINE, values, noise=0.2)
    assert noisy.of(LINE) == pytest.approx(1.25)
    assert noisy.spread > 0.5  # but the doubt is told
    assert Line.through(LINE, {**values, "large": 9.25}, noise=0.2).rate == pytest.approx(8 / 300, rel=0.01)


def test_a_request_has_as_many_workers_as_gain_anything():
    quick = [Walls(1, 600, 600), Walls(2, 400, 600)]
    assert fitting(quick, 10**9).lines()[2:] == [
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem=2048M",
        "#SBATCH --time=00:25:00",
    ]
    long = [Walls(1 << n, max(80_000 / 2**n, 10_000), 80_000) for n in range(8)]
    assert (fitting(long, 10**9).jobs, fitting(long, 10**9).cores) == (1, 8)  # a file of its own decides


@pytest.mark.slow
def test_what_cannot_be_estimated(corpus):
    for options, said in (
        ({"sample_bytes": 0}, "sample_bytes=0"),
        ({"workers": [0]}, "workers=0"),
        ({"only": ["mix"]}, "out/v0"),
    ):
        with pytest.raises(UsageError, match=said):
            dk.estimate("p.yaml", progress=False, **options)
    Path("p.yaml").write_text("stages:\n  - convert: {inputs: raw, to: out/v0, text: nowhere}\n")
    with pytest.raises(TrialError, match=r"'convert' failed on the sample.*nowhere") as failed:
        dk.estimate("p.yaml", progress=False, scratch="scratch")
    assert "scratch" not in str(failed.value)  # nobody finds that any more
    assert list(Path("scratch").iterdir()) == []
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
        while process.poll() is None and not list(Path("scratch").glob("*/*/runs.pickle")):
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
    assert answer.files == 1
    assert answer.bytes == made(tmp_path / "v0/documents")[0]
