"""dedupe by similarity: the clusters that bands make, who survives, what is written, and going on after anything."""

import json
import pickle
import random
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from itertools import accumulate, combinations, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask.display import byte_size
from dolma_dask.engine import execution
from dolma_dask.errors import (
    CorruptFileError,
    InterruptedStageError,
    SourceChangedError,
    StageError,
    UsageError,
)
from dolma_dask.io import publish
from dolma_dask.io.records import FileRecord
from dolma_dask.minhash.bands import Bands, band_keys
from dolma_dask.verbs.dedupe.fuzzy import edges, verification
from dolma_dask.verbs.dedupe.fuzzy import job as fuzzy
from dolma_dask.verbs.dedupe.fuzzy.clusters import ClusterOutput, ClusterReducer, ClusterTable, MemberEmitter
from dolma_dask.verbs.dedupe.fuzzy.edges import EdgeReducer, MergeStage
from dolma_dask.verbs.dedupe.fuzzy.ngram_sets import JaccardReducer, NgramReducer
from dolma_dask.verbs.dedupe.fuzzy.signatures import SignatureReader, SignedShard, read_signatures
from dolma_dask.verbs.dedupe.fuzzy.verification import CompareReducer, PairReducer, SignReducer

from .conftest import failing, read_lines, write_lines

HERE = {"scheduler": "synchronous", "progress": False}
WORDS = [f"w{number}" for number in range(400)]


def edited(draw, words, changes):
    """Return words with a few of them replaced."""
    words = list(words)
    for _ in range(changes):
        words[draw.randrange(len(words))] = draw.choice(WORDS)
    return words


def dead_pid():
    """Return the number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def read_group(url, num_perm):
    """Read the signatures of the first row group."""
    folder, _, name = url.rpartition("/")
    shard = SignedShard(0, folder, "", 0, 1, FileRecord(name, 0, ""))
    return SignatureReader([shard], num_perm).take(np.zeros(1, np.uint64))


def make_world(folder):
    """Write three shards: families of near copies, short, empty and unlike texts."""
    draw = random.Random(4)
    texts = []
    for _ in range(30):
        original = [draw.choice(WORDS) for _ in range(draw.randrange(40, 120))]
        texts += [" ".join(edited(draw, original, changes)) for changes in range(draw.randrange(1, 6))]
    texts += ["only three words", "Only three, words!", "", "...", "", "unlike"]
    draw.shuffle(texts)
    documents = [{"id": f"d{n}", "text": text, "source": f"s{n % 2}"} for n, text in enumerate(texts)]
    for shard in range(3):
        path = folder / f"v0/documents/{'x/' * (shard == 1)}{shard}.jsonl.gz"
        write_lines(path, [json.dumps(document) for document in documents[shard::3]])
    return folder / "v0"


@pytest.fixture
def world(tmp_path):
    return make_world(tmp_path)


def rows_of(root, name="fuzzy"):
    """Return [(id, attributes)] of all rows in the order of the listing."""
    paths = sorted((root / "attributes" / name).rglob("*.jsonl.gz"), key=str)
    return [(row["id"], row["attributes"]) for path in paths for row in map(json.loads, read_lines(path))]


def documents_of(root):
    paths = sorted((root / "documents").rglob("*.jsonl.gz"), key=str)
    return [json.loads(line) for path in paths for line in read_lines(path)]


def clusters_by_bands(root, bands, least_matches=0, most=None):
    """Return the clusters of two and more as sorted tuples of rows, from the stored signatures, in plain Python; `most` takes the most matches of each row."""
    files = sorted((root / "signatures").rglob("*.parquet"), key=str)
    parts = [part for path in files for part in read_signatures(str(path), 128)]
    values = np.concatenate([values for values, _ in parts])
    signed = np.concatenate([valid for _, valid in parts])
    keys = band_keys(values, bands, 0, bands.num_bands)
    buckets = defaultdict(list)
    for row in np.flatnonzero(signed).tolist():
        for key in keys[row].tolist():
            buckets[key].append(row)
    parent = list(range(len(values)))

    def root_of(row):
        return row if parent[row] == row else root_of(parent[row])

    for rows in buckets.values():
        for left, right in {*((rows[0], row) for row in rows[1:]), *pairwise(rows)}:
            matches = int((values[left] == values[right]).sum())
            if matches >= least_matches:
                for row in (left, right) if most is not None else ():
                    most[row] = max(most.get(row, 0), matches)
                one, other = root_of(left), root_of(right)
                parent[max(one, other)] = min(one, other)
    clusters = defaultdict(list)
    for row in range(len(values)):
        clusters[root_of(row)].append(row)
    return sorted(tuple(rows) for rows in clusters.values() if len(rows) > 1)


def in_groups_of(key_bytes, monkeypatch):
    """Let so many bytes of keys be on disk at once, or those of one band; return the names of passes that send keys."""
    names, scatter = [], fuzzy.scatter
    monkeypatch.setattr(fuzzy, "GROUP_BYTES", key_bytes)
    monkeypatch.setattr(fuzzy, "GROUP_SHARE", 1 << 40)

    def noted(*args, name):
        names.append(name)
        return scatter(*args, name=name)

    monkeypatch.setattr(fuzzy, "scatter", noted)
    return names


@pytest.mark.slow
def test_groups_of_bands_grow_with_the_signatures(world, monkeypatch):
    names = in_groups_of(1, monkeypatch)
    dk.dedupe(str(world), how="fuzzy", **HERE)
    assert names == [*(f"bands-{number}" for number in range(14)), "members"]
    monkeypatch.setattr(fuzzy, "GROUP_SHARE", 10)  # 51 of 512 bytes: three bands
    names.clear()
    dk.dedupe(str(world), how="fuzzy", overwrite=True, **HERE)
    assert names == [*(f"bands-{number}" for number in range(5)), "members"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bands", "group_bytes", "verify"),
    [
        ((14, 8), 1, "none"),
        ((14, 8), 1 << 32, "signatures"),
        ((2, 3), 1, "signatures"),
        ((2, 3), 1 << 32, "none"),
        ((9, 13), 1, "none"),
        ((9, 13), 1 << 32, "signatures"),
    ],
)  # every two of the values meet
def test_clusters_are_those_of_the_bands(world, monkeypatch, bands, group_bytes, verify):
    in_groups_of(group_bytes, monkeypatch)
    monkeypatch.setattr(verification, "BATCH", 7)
    shape = {"num_bands": bands[0], "rows_per_band": bands[1], "similarity": 0.8, "verify": verify}
    summary = dk.dedupe(str(world), how="fuzzy", **shape, **HERE)
    most = {}
    expected = clusters_by_bands(world, Bands(*bands), 103 if verify == "signatures" else 0, most)
    assert expected
    rows, documents = rows_of(world), documents_of(world)
    sizes = {row: len(cluster) for cluster in expected for row in cluster}
    survivors = {cluster[0] for cluster in expected}
    for number, (identity, attributes) in enumerate(rows):
        length = len(documents[number]["text"])
        size = {"fuzzy__cluster_size": [[0, length, float(sizes[number])]]} if number in sizes else {}
        flag = {"fuzzy": [[0, length, 1]]} if number in sizes and number not in survivors else {}
        similarity = attributes.pop("fuzzy__similarity", None)
        assert (identity, attributes) == (documents[number]["id"], {**flag, **size})
        is_compared = verify == "signatures" and number in sizes
        assert similarity == ([[0, length, round(most[number] / 128, 5)]] if is_compared else None)
    assert summary.counts["clusters"] == len(expected)
    assert summary.counts["duplicates"] == sum(map(len, expected)) - len(expected)


def test_verification_refuses_pairs_that_a_band_finds_by_chance(world):
    loose = {"num_bands": 25, "rows_per_band": 2}
    by_bands = dk.dedupe(str(world), how="fuzzy", name="by_bands", verify="none", **loose, **HERE)
    verified = dk.dedupe(str(world), how="fuzzy", similarity=0.9, **loose, **HERE)
    assert 0 < verified.counts["duplicates"] < by_bands.counts["duplicates"]


def test_the_table_names_clusters_by_their_first_document(world):
    dk.dedupe(str(world), how="fuzzy", keep="longest", **HERE)
    table = pq.read_table(world / "clusters/fuzzy.parquet").to_pylist()
    documents = documents_of(world)
    paths = sorted((world / "documents").rglob("*.gz"), key=str)
    first_rows = np.cumsum([0, *(len(read_lines(path)) for path in paths)])
    shards = {path.relative_to(world / "documents").as_posix(): n for n, path in enumerate(paths)}

    def number(shard, row):
        return int(first_rows[shards[shard]]) + row

    members = defaultdict(list)
    for row in table:
        at = number(row["shard"], row["row"])
        assert (documents[at]["id"], documents[at]["source"]) == (row["id"], row["source"])
        members[number(row["cluster_shard"], row["cluster_row"])].append((at, row["size"], row["survivor"]))
    expected = clusters_by_bands(world, Bands(14, 8), 90)
    assert sorted(tuple(at for at, _, _ in rows) for rows in members.values()) == expected
    for first, rows in members.items():
        assert first == rows[0][0]
        assert {size for _, size, _ in rows} == {len(rows)}
        longest = max((at for at, _, _ in rows), key=lambda at: (len(documents[at]["text"]), -at))
        assert [at for at, _, survives in rows if survives] == [longest]


def test_signatures_are_read_again_for_other_bands_and_not_made(world):
    dk.dedupe(str(world), how="fuzzy", **HERE)
    before = {path: path.stat().st_mtime_ns for path in (world / "signatures").rglob("*.parquet")}
    dk.dedupe(str(world), how="fuzzy", name="loose", num_bands=20, rows_per_band=5, **HERE)
    assert {path: path.stat().st_mtime_ns for path in (world / "signatures").rglob("*.parquet")} == before


@pytest.mark.parametrize("options", [{"similarity": 0.0}, {"similarity": 0.05, "verify": "ngrams"}])
def test_pairs_are_verified_at_any_similarity(world, options):
    dk.dedupe(str(world), how="fuzzy", num_bands=25, rows_per_band=2, **options, **HERE)
    sizes = [attributes for _, attributes in rows_of(world) if "fuzzy__cluster_size" in attributes]
    assert sizes
    assert all(attributes["fuzzy__similarity"][0][2] > 0 for attributes in sizes)


@pytest.mark.parametrize("read", [read_signatures, read_group])
def test_damaged_signatures_are_removed_and_made_again(world, read):
    dk.dedupe(str(world), how="fuzzy", **HERE)
    path = min((world / "signatures").rglob("*.parquet"))
    whole = path.read_bytes()
    column = pq.read_metadata(path).row_group(0).column(6)
    at = column.data_page_offset + column.total_compressed_size - 1
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(CorruptFileError, match="run the same command again"):
        list(read(str(path), 128))
    assert not path.exists()
    dk.dedupe(str(world), how="fuzzy", name="loose", num_bands=20, rows_per_band=5, **HERE)
    assert path.read_bytes() == whole


def test_what_a_killed_run_left_of_the_table_of_clusters_is_removed(world):
    left = world / f"clusters/.fuzzy.parquet.{publish.writer_space()}-{dead_pid()}-01234567.tmp"
    left.parent.mkdir()
    left.touch()
    dk.dedupe(str(world), how="fuzzy", **HERE)
    assert not left.exists()


@pytest.mark.parametrize("own", [b"mine", None])
def test_a_file_of_the_users_in_place_of_the_table_of_clusters_is_refused(world, own):
    path = world / "clusters/fuzzy.parquet"
    path.parent.mkdir()
    if own is None:
        pq.write_table(pa.table({"cluster": [1, 2]}), path)
    else:
        path.write_bytes(own)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"no table of clusters that dedupe wrote.*--overwrite"):
        dk.dedupe(str(world), how="fuzzy", **HERE)
    assert path.read_bytes() == before
    dk.dedupe(str(world), how="fuzzy", overwrite=True, **HERE)
    assert pq.read_table(path).num_rows
    path.write_bytes(b"damaged")  # the journal knows that it was ours
    dk.dedupe(str(world), how="fuzzy", **HERE)
    assert pq.read_table(path).num_rows


@pytest.mark.slow
def test_signatures_that_another_run_makes_anew_meanwhile_are_refused(world):
    for path in (world / "documents").rglob("*.jsonl.gz"):
        write_lines(path, [re.sub(r', "source": "s."', "", line) for line in read_lines(path)])
    others = []

    def sign_anew(task):
        if not others:
            others.append(1)
            dk.dedupe(str(world), how="fuzzy", name="other", source="theirs", **HERE)

    stopped = pytest.raises(SourceChangedError, match="was written by another run while dedupe read it")
    with failing(ClusterTable, at=sign_anew), stopped:
        dk.dedupe(str(world), how="fuzzy", source="ours", **HERE)
    dk.dedupe(str(world), how="fuzzy", source="ours", **HERE)
    assert set(pq.read_table(world / "clusters/fuzzy.parquet")["source"].to_pylist()) == {"ours"}


@pytest.mark.slow
def test_signatures_of_a_shard_that_was_removed_go_with_it(world):
    dk.dedupe(str(world), how="fuzzy", **HERE)
    (world / "documents/2.jsonl.gz").unlink()
    (world / "attributes/fuzzy/2.jsonl.gz").unlink()
    assert dk.status(str(world)).exit_status == 1  # clusters name documents of it
    dk.dedupe(str(world), how="fuzzy", name="one", **HERE)
    made = [
        path.relative_to(world / "signatures").parts[1:] for path in world.glob("signatures/**/*.parquet")
    ]
    assert sorted(made) == [("0.jsonl.gz.parquet",), ("x", "1.jsonl.gz.parquet")]
    dk.dedupe(str(world), how="fuzzy", **HERE)
    rows = {row.writes: row for row in dk.status(str(world)).rows}
    assert {name: row.state for name, row in rows.items() if "one" not in name} == dict.fromkeys(
        (f"signatures/{made_in(world)}/", "attributes/fuzzy/"), "done"
    )


def made_in(world):
    """Return the only folder of signatures."""
    (folder,) = (world / "signatures").iterdir()
    return folder.name


def test_short_and_empty_texts_are_counted_and_empty_ones_kept(world):
    summary = dk.dedupe(str(world), how="fuzzy", **HERE)
    flagged = {identity for identity, attributes in rows_of(world) if "fuzzy" in attributes}
    documents = documents_of(world)
    assert not flagged & {one["id"] for one in documents if not one["text"].strip(". ")}
    three = [one["id"] for one in documents if one["text"].lower().startswith("only three")]
    assert len(flagged & set(three)) == 1
    assert (summary.counts["short_texts"], summary.counts["empty_texts"]) == (3, 3)


STOPS = {
    "edges": (EdgeReducer, "reduce"),
    "pairs": (PairReducer, "reduce"),
    "signed": (SignReducer, "reduce"),
    "compared": (CompareReducer, "reduce"),
    "ngrams": (NgramReducer, "reduce"),
    "jaccard": (JaccardReducer, "reduce"),
    "merge": (MergeStage, "run_shard"),
    "members": (MemberEmitter, "emit"),
    "clusters": (ClusterReducer, "reduce"),
    "table": (ClusterTable, "run_shard"),
    "flags": (ClusterOutput, "open"),
}


VERIFIED_BY = {"edges": "none", "members": "none", "ngrams": "ngrams", "jaccard": "ngrams"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return a function: the dataset after a run that was not stopped, one for all tests that verify alike."""

    @cache
    def finish(verify):
        root = make_world(tmp_path_factory.mktemp("finished"))
        with pytest.MonkeyPatch.context() as patch:
            in_groups_of(1, patch)
            dk.dedupe(str(root), how="fuzzy", verify=verify, **HERE)
        return root

    return finish


@pytest.mark.slow
@pytest.mark.parametrize("stop", STOPS)
def test_a_run_that_was_stopped_goes_on(world, finished, monkeypatch, stop):
    stage, method = STOPS[stop]
    how = {"how": "fuzzy", "verify": VERIFIED_BY.get(stop, "signatures")}
    in_groups_of(1, monkeypatch)
    whole = finished(how["verify"])
    with failing(stage, method=method), pytest.raises(InterruptedStageError):
        dk.dedupe(str(world), **how, **HERE)
    dk.dedupe(str(world), **how, **HERE)
    assert rows_of(world) == rows_of(whole)
    clusters = "clusters/fuzzy.parquet"
    assert (world / clusters).read_bytes() == (whole / clusters).read_bytes()
    assert not list(world.glob("_work/*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"how": "exact", "ngram": 3}, "ngram with how='exact'"),
        ({"how": "fuzzy", "by": "id"}, "by='id' with how='fuzzy'"),
        ({"how": "fuzzy", "num_bands": 3}, "num_bands was given alone"),
        (
            {"how": "fuzzy", "num_bands": 20, "rows_per_band": 20},
            "20 bands of 20 rows use 400 signature values",
        ),
        ({"how": "fuzzy", "similarity": "0.7"}, "similarity='0.7'"),
        ({"how": "fuzzy", "num_bands": 2.5, "rows_per_band": 2}, "num_bands=2.5; expected a whole number"),
        ({"how": "fuzzy", "within": ""}, "within=''"),
        ({"how": "fuzzy", "similarity": 80}, "similarity=80; expected a number from 0 to 1"),
        ({"how": "fuzzy", "scheme": "simhash"}, "scheme='simhash'"),
        ({"how": "fuzzy", "ngram": 0}, "ngram=0"),
        ({"how": "fuzzy", "num_perm": 0}, "num_perm=0"),
        ({"how": "fuzzy", "num_perm": 65_535}, "num_perm=65535; expected a whole number from 1 to 10,000"),
    ],
)
def test_what_cannot_be_is_refused(world, options, words):
    with pytest.raises(UsageError, match=words):
        dk.dedupe(str(world), **options, **HERE)
    assert not (world / "_journal").exists()


def test_a_rehearsal_tells_memory_and_disk(world):
    sizes = [path.stat().st_size for path in world.rglob("*.jsonl.gz")]
    guessed = sum(-(-size // 1000) for size in sizes)

    def told(**options):
        return dk.dedupe(str(world), how="fuzzy", dry_run=True, **options, **HERE).notes[-1]

    assert told().startswith(
        f"{guessed} documents, {guessed} of them guessed: 1,000 stored bytes each. They need"
    )
    dk.tag(str(world), ["char_length_v1"], **HERE)
    rows = sum(len(read_lines(path)) for path in world.glob("documents/**/*.gz"))
    assert told() == (
        f"{rows} documents. They need {rows * 6:,} B of memory in one worker beside what every worker needs; on disk {byte_size(rows * 512)} of signatures, "
        f"which stay (those that are there included), and meanwhile {byte_size(rows * 16 * 14)} of keys of 14 bands at a time, and 528 bytes for each pair "
        "that is compared"
    )
    assert f"{rows * 4:,} B of memory" in told(verify="none")
    assert "pair" not in told(verify="none")
    write_lines(world / "documents/2.jsonl.gz", [json.dumps({"id": "one", "text": "more", "source": "s"})])
    assert ", 1 of them guessed" in told()
    dk.dedupe(str(world), how="fuzzy", **HERE)
    assert not any(
        "They need" in note for note in dk.dedupe(str(world), how="fuzzy", dry_run=True, **HERE).notes
    )


def test_what_does_not_fit_into_memory_is_refused(world, monkeypatch):
    monkeypatch.setattr(edges, "memory_limit", lambda: 100)
    with pytest.raises(StageError, match="GB of memory in one worker"):
        dk.dedupe(str(world), how="fuzzy", **HERE)


def test_verification_by_ngrams_knows_the_true_similarity(world):
    loose = {"num_bands": 25, "rows_per_band": 2, "similarity": 0.6}
    dk.dedupe(str(world), how="fuzzy", verify="ngrams", **loose, **HERE)
    documents = documents_of(world)
    found = {}
    for number, (_, attributes) in enumerate(rows_of(world)):
        if "fuzzy__similarity" in attributes:
            found[number] = attributes["fuzzy__similarity"][0][2]
    grams = [five_grams(document["text"]) for document in documents]
    for number, similarity in found.items():
        every = [jaccard(grams[number], other) for at, other in enumerate(grams) if at != number]
        assert any(abs(similarity - each) < 0.0001 for each in every if each >= 0.6)
    near = {
        row
        for row, other in combinations(range(len(grams)), 2)
        if grams[row] and jaccard(grams[row], grams[other]) >= 0.75
        for row in (row, other)
    }
    assert near
    assert near <= set(found)


def five_grams(text):
    words = text.lower().replace(",", " ").replace("!", " ").replace(".", " ").split()
    return {tuple(words[at : at + 5]) for at in range(max(len(words) - 4, min(len(words), 1)))}


def jaccard(one, other):
    return len(one & other) / max(len(one | other), 1)


@pytest.mark.slow
def test_what_workers_get_does_not_grow_with_the_shards(tmp_path, monkeypatch):
    execute, sizes = execution.execute, []

    def measured(stage, tasks, *args):
        sizes[-1][stage.verb] = len(pickle.dumps(stage))
        execute(stage, tasks, *args)

    monkeypatch.setattr(execution, "execute", measured)
    for shards in (2, 40):
        sizes.append({})
        for shard in range(shards):
            line = json.dumps({"id": f"d{shard}", "text": " ".join(WORDS[:50]), "source": "s"})
            write_lines(tmp_path / f"{shards:02d}/documents/{shard:02d}.jsonl.gz", [line])
        dk.dedupe(str(tmp_path / f"{shards:02d}"), how="fuzzy", verify="ngrams", **HERE)
    for verb, size in sizes[0].items():
        assert sizes[1][verb] < size + 100, verb


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(0, 1, "a"), (3, 4, "a"), (3, 5, "abd"), (4, 5, "d"), (5, 9, "d"), (8, 10, "de"), (9, 16, "e")],
)
def test_a_range_gets_the_shards_that_it_reads(first, last, expected):
    rows = {"a": 4, "b": 0, "d": 5, "e": 7}
    firsts = accumulate(rows.values(), initial=0)
    shards = [
        SignedShard(number, "", path, begin, rows[path], FileRecord(path, 0, ""))
        for number, (path, begin) in enumerate(zip(rows, firsts, strict=False))
    ]
    part = SignReducer(shards, 128, 60).part(first << 60, last << 60)
    assert "".join(shard.path for shard in part.shards) == expected
    less = SignReducer(shards, 128, 60).part(first << 60, ((last - 1) << 60) + 1)
    assert less.shards == part.shards
