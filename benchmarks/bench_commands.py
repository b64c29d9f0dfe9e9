"""Whole commands, start-up included, and the Dolma toolkit 1.2.1 on the same files.

The toolkit lives in an environment of its own (``--with-dolma`` makes it); without it its rows say "-". It gets one process, as our
commands do here, and an empty ``punkt`` folder, so that it does not look for that model on the network.
"""

import os
import subprocess
import sys
from pathlib import Path

import dolma_dask as dk
from benchmarks.bench_verbs import TAGGERS, WORDS, linked, tagged
from benchmarks.corpus import BUILD
from benchmarks.harness import Goal, Job, Result, benchmark, cpu_seconds

DOLMA_ENVIRONMENT = BUILD / "dolma-venv"
DOLMA = DOLMA_ENVIRONMENT / "bin" / "dolma"
HELP_CALLS = 5


def make_dolma_environment() -> None:
    """Install the Dolma toolkit; uv, because plain pip does not find versions that fit together."""
    uv = Path(sys.executable).with_name("uv")
    command = str(uv) if uv.exists() else "uv"
    if not DOLMA.exists():
        subprocess.run(
            [command, "venv", "--quiet", "--python", sys.executable, str(DOLMA_ENVIRONMENT)], check=True
        )
        python = str(DOLMA_ENVIRONMENT / "bin" / "python")
        subprocess.run([command, "pip", "install", "--quiet", "--python", python, "dolma==1.2.1"], check=True)


def nltk_data() -> Path:
    """Return an empty folder of models, so that the toolkit does not look for one on the network."""
    data = BUILD / "nltk"
    (data / "tokenizers" / "punkt").mkdir(parents=True, exist_ok=True)
    return data


def call(*command: str) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(
        command, env={**os.environ, "NLTK_DATA": str(nltk_data())}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def ours() -> str:
    return str(Path(sys.executable).with_name("dolma-dask"))


@benchmark("help", goal=Goal("cpu", 0.5), beside="dolma-help")
def show_help(job: Job) -> None:
    """One call of dolma-dask --help."""
    _help(job, ours())


@benchmark("dolma-help")
def dolma_help(job: Job) -> None:
    """One call of dolma --help: the toolkit's start-up."""
    if DOLMA.exists():
        _help(job, str(DOLMA))


def _help(job: Job, program: str) -> None:
    call(program, "--help")
    with job.measured(0):
        for _ in range(HELP_CALLS):
            call(program, "--help")
    assert job.result
    job.result = Result(0, job.result.cpu / HELP_CALLS, job.result.wall / HELP_CALLS, job.result.peak)


@benchmark("tag-command", beside="dolma-tag")
def tag_command(job: Job) -> None:
    """dolma-dask tag, two of the eight files, one process, start-up included."""
    _command(job, job.corpus.few_mb, "tag", linked(job, "few"), "--taggers", *TAGGERS)


@benchmark("dolma-tag")
def dolma_tag(job: Job) -> None:
    """dolma tag on the same two files, start-up included."""
    if DOLMA.exists():
        documents = linked(job, "few") + "/documents/*.gz"
        names = ["--taggers", *TAGGERS, "--processes", "1"]
        _dolma(job, job.corpus.few_mb, "tag", "--documents", documents, *names)


@benchmark("mix-command", beside="dolma-mix")
def mix_command(job: Job) -> None:
    """dolma-dask mix with one rule over gopher_v2, start-up included."""
    _command(
        job, job.corpus.text_mb, "mix", tagged(job, "all"), "--to", str(job.scratch / "v1"), "--where", WORDS
    )


@benchmark("dolma-mix")
def dolma_mix(job: Job) -> None:
    """dolma mix with the same rule, documents and attributes, start-up included."""
    if not DOLMA.exists():
        return
    root, config = tagged(job, "all"), job.scratch / "mix.yaml"
    config.write_text(MIX.format(root=root, output=job.scratch / "out"))
    _dolma(job, job.corpus.text_mb, "-c", str(config), "mix")
    kept = dk.mix(root, to=str(job.scratch / "v1"), where=WORDS, scheduler="synchronous", progress=False)
    assert _rows(job.scratch / "out") == kept.counts["documents_out"], "dolma keeps other documents"


MIX = """
streams:
  - name: bench
    documents: ["{root}/documents/*.gz"]
    attributes: [gopher_v2]
    output: {{path: "{output}", max_size_in_bytes: 100000000, discard_fields: [attributes]}}
    filter:
      include: ["$.attributes[?(@.gopher_v2__gopher_v2__word_count[0][2] > 49.5)]"]
processes: 1
"""


def _command(job: Job, megabytes: float, *words: str) -> None:
    """Measure one of our commands in one process."""
    options = ["--scheduler", "synchronous", "--overwrite", "--no-progress"]
    call(ours(), *words, *options)  # compiles what is not compiled yet
    with job.measured(megabytes):
        call(ours(), *words, *options)


def _dolma(job: Job, megabytes: float, *words: str) -> None:
    """Measure a command of the toolkit, and say what it makes past its start-up."""
    before = cpu_seconds()
    call(str(DOLMA), "--help")
    start_up = cpu_seconds() - before
    with job.measured(megabytes):
        call(str(DOLMA), *words)
    assert job.result
    speed = megabytes / (job.result.cpu - start_up)
    job.result = Result(**{**vars(job.result), "note": f"{speed:.1f} less start-up of {start_up:.2f} s"})


def _rows(folder: Path) -> int:
    import gzip

    return sum(gzip.decompress(path.read_bytes()).count(b"\n") for path in folder.rglob("*.gz"))
