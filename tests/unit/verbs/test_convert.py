"""convert: inputs by file, folder and glob, sizes of shards, several sources in one dataset, forms of attributes."""

import errno
import io
import json
import tarfile

import pytest

import dolma_dask as dk
from dolma_dask.errors import BadRecordBudgetError, StageError, UsageError
from dolma_dask.io.files import FileInfo
from dolma_dask.ownership import incomplete
from dolma_dask.sinks.jsonl import JsonlWriter
from dolma_dask.sources import FieldMapping, RawShard
from dolma_dask.sources.naming import list_raw
from dolma_dask.verbs.convert.documents import Conversion, RawDocuments

from .conftest import document, read_lines, write_lines


@pytest.fixture
def raw(tmp_path):
    write_lines(tmp_path / "raw/2019/a.jsonl.gz", [document(number) for number in range(5)])
    write_lines(tmp_path / "raw/2020/b.json.gz", [json.dumps({"text": "t", "url": "u"})])
    return tmp_path / "raw"


def names(root):
    return sorted(
        path.relative_to(root / "documents").as_posix() for path in (root / "documents").rglob("*.gz")
    )


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("raw", ["2019/a.jsonl.gz", "2020/b.jsonl.gz"]),
        ("raw/*/a.jsonl.gz", ["2019/a.jsonl.gz"]),
        ("raw/**/*.gz", ["2019/a.jsonl.gz", "2020/b.jsonl.gz"]),
        ("raw/2019/a.jsonl.gz", ["a.jsonl.gz"]),
        (["raw/2019", "raw/2020"], ["2019/a.jsonl.gz", "2020/b.jsonl.gz"]),
    ],
)
def test_inputs(raw, tmp_path, inputs, expected):
    items = [inputs] if isinstance(inputs, str) else inputs
    dk.convert([str(tmp_path / item) for item in items], to=str(tmp_path / "v0"), source="s", progress=False)
    assert names(tmp_path / "v0") == expected


def test_names_with_signs_of_globs_are_names(tmp_path):
    write_lines(tmp_path / "raw [1]?/a*b.jsonl", [document(0)])
    dk.convert(str(tmp_path / "raw [1]?"), to=str(tmp_path / "v0"), progress=False)
    dk.convert(str(tmp_path / "raw [1]?/a*b.jsonl"), to=str(tmp_path / "v1"), progress=False)
    assert names(tmp_path / "v0") == names(tmp_path / "v1") == ["a*b.jsonl.gz"]


def test_inputs_of_an_object_store():
    import fsspec

    store = fsspec.filesystem("memory")
    for path in ("/raw-store/x/a.jsonl", "/raw-store/y/b.jsonl"):
        store.pipe(path, (document(0) + "\n").encode())
    for inputs in (
        "memory://raw-store",
        ["memory://raw-store/x", "memory://raw-store/y"],
        "memory://raw-store/*/*.jsonl",
    ):
        base, found = list_raw([inputs] if isinstance(inputs, str) else inputs)
        assert base == "memory://raw-store"
        assert [info.path for info in found] == ["x/a.jsonl", "y/b.jsonl"]


def test_nothing_found_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no files found"):
        dk.convert(str(tmp_path / "*.jsonl"), to=str(tmp_path / "v0"))


@pytest.mark.slow
def test_ids_do_not_depend_on_the_size_of_shards(raw, tmp_path):
    kept = {}
    for size in (None, 1, 150, 10**9):
        to = tmp_path / f"v{size}"
        dk.convert(str(raw), to=str(to), source="s", shard_bytes=size, progress=False)
        kept[size] = sorted(line for name in names(to) for line in read_lines(to / "documents" / name))
    assert len(names(tmp_path / "v1")) == 6
    assert names(tmp_path / f"v{10**9}") == ["shard-00000.jsonl.gz"]
    assert kept[None] == kept[1] == kept[150] == kept[10**9]


def test_fewer_parts_than_before_leave_none_behind(raw, tmp_path):
    to = tmp_path / "v0"
    dk.convert(str(raw), to=str(to), source="s", shard_bytes=1, progress=False)
    assert "shard-00000-part-00004.jsonl.gz" in names(to)
    write_lines(raw / "2019/a.jsonl.gz", [document(0), document(1)])
    dk.convert(str(raw), to=str(to), source="s", shard_bytes=1, progress=False)
    assert names(to) == ["shard-00000-part-00001.jsonl.gz", "shard-00000.jsonl.gz", "shard-00001.jsonl.gz"]


def test_a_part_that_cannot_be_opened_says_why(raw, tmp_path, monkeypatch):
    begun = []

    def begin(self, stack):
        begun.append(self)
        if len(begun) == 2:
            raise PermissionError(errno.EACCES, "Permission denied", "part")

    monkeypatch.setattr(JsonlWriter, "_begin", begin)
    with pytest.raises(StageError, match=r"Permission denied: 'part'"):
        dk.convert(
            str(raw),
            to=str(tmp_path / "v0"),
            source="s",
            shard_bytes=1,
            scheduler="synchronous",
            progress=False,
        )


def test_several_sources_in_one_dataset(raw, tmp_path):
    to = str(tmp_path / "v0")
    dk.convert(str(raw / "2019"), to=to, under="one", progress=False)
    dk.convert(str(raw / "2020"), to=to, under="two", id="url", source="web", progress=False)
    assert names(tmp_path / "v0") == ["one/a.jsonl.gz", "two/b.jsonl.gz"]
    assert json.loads(read_lines(tmp_path / "v0/documents/two/b.jsonl.gz")[0]) == {
        "id": "u",
        "text": "t",
        "source": "web",
    }
    assert dk.convert(str(raw / "2019"), to=to, under="one", progress=False).skipped == 1
    with pytest.raises(UsageError, match="beside them with --under FOLDER"):
        dk.convert(str(raw / "2020"), to=to, source="web", progress=False)


def test_text_files_beside_records_have_none_of_their_fields(tmp_path):
    write_lines(tmp_path / "raw/a.jsonl", [json.dumps({"n": 7, "page": {"body": "t"}, "site": "s"})])
    (tmp_path / "raw/b.md").write_text("note")
    fields = {"id": "n", "text": "page.body", "source_field": "site", "created": "n"}
    summary = dk.convert(
        str(tmp_path / "raw"), to=str(tmp_path / "v0"), source="mine", progress=False, **fields
    )
    assert summary.counts["bad_records"] == 0
    (note,) = read_lines(tmp_path / "v0/documents/text-00000.jsonl.gz")
    assert json.loads(note) == {"id": "b.md", "text": "note", "source": "mine", "metadata": {"path": "b.md"}}


def test_text_files_are_made_again_only_where_fields_were_looked_for_in_them():
    shard = RawShard("text-00000.jsonl.gz", (FileInfo("b.md", 4, ""),))
    records = RawShard("a.jsonl.gz", (FileInfo("a.jsonl", 4, ""),))
    own, mapped = FieldMapping(source_name="s", generated_id="u/{row}"), FieldMapping(text="body")

    def looked(fields, shard):
        return "text_files" in RawDocuments(Conversion("raw", fields), shard).params

    assert looked(mapped, shard)
    assert not looked(mapped, records)
    assert not looked(own, shard)


def test_members_of_archives_that_are_skipped_are_counted_and_named(tmp_path):
    (tmp_path / "raw").mkdir()
    with tarfile.open(tmp_path / "raw/a.tar", "w") as tar:
        data = document(0).encode()
        info = tarfile.TarInfo("a.jsonl")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
        for number in range(25):
            link = tarfile.TarInfo(f"b{number}.jsonl")
            link.type, link.linkname = tarfile.LNKTYPE, "a.jsonl"
            tar.addfile(link)
    for _ in range(2):  # also when all is done before
        summary = dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), progress=False)
        assert (summary.counts["documents_out"], summary.counts["skipped_members"]) == (1, 25)
        assert "25 members of archives skipped" in summary.notes[-1]
        assert "a.tar#b0.jsonl (hard link), " in summary.notes[-1]
        assert summary.notes[-1].endswith("b19.jsonl (hard link) and 5 more")


def test_budget_of_bad_records(tmp_path):
    write_lines(tmp_path / "raw/a.jsonl", [document(0), "nonsense", document(1)])
    options = {"to": str(tmp_path / "v0"), "on_bad_record": "quarantine", "progress": False}
    for _ in range(2):  # also when all is done before
        with pytest.raises(BadRecordBudgetError, match=r"1 of 3 rows are bad \(33.333%\)"):
            dk.convert(str(tmp_path / "raw"), **options)
    summary = dk.convert(str(tmp_path / "raw"), max_bad_fraction=0.4, **options)
    assert summary.counts["documents_out"] == 2
    assert summary.notes[-1] == f"1 record set aside in {tmp_path}/v0/_quarantine/convert/"
    assert (tmp_path / "v0/_quarantine/convert/a.jsonl.gz.jsonl").exists()


READERS = {
    "tag": lambda root, to: dk.tag(root, ["char_length_v1"], progress=False),
    "mix": lambda root, to: dk.mix(root, to=f"{to}/v1", progress=False),
    "opened": lambda root, to: dk.mix(dk.open_dataset(root), to=f"{to}/v1", progress=False),
    "validate": lambda root, to: dk.validate(root, progress=False),
    "dedupe": lambda root, to: dk.dedupe(root, progress=False),
    "report": lambda root, to: dk.report(root, to=f"{to}/page.html", progress=False),
    "read_dataframe": lambda root, to: dk.read_dataframe(root),
}


def test_the_example_of_bad_records_is_of_the_file_that_has_most(tmp_path):
    write_lines(
        tmp_path / "raw/a.jsonl", ["nonsense", *map(document, range(90))]
    )  # the larger one comes first
    write_lines(tmp_path / "raw/b.json", ["[", *(f"{document(number)}," for number in range(4)), "]"])
    with pytest.raises(BadRecordBudgetError, match=r"\(7 of 7 looked at\): .*raw/b.json, row 0, .*jq -c"):
        dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), on_bad_record="quarantine", progress=False)


@pytest.mark.slow
def test_a_dataset_over_its_budget_is_refused_until_it_is_mended(tmp_path):
    missing = json.dumps({"id": "1", "source": "s"})
    write_lines(tmp_path / "raw/a.jsonl", [document(0), missing, missing, "nonsense", document(1)])
    write_lines(tmp_path / "raw/b.jsonl", [document(2)])
    raw, root = str(tmp_path / "raw"), str(tmp_path / "v0")
    options = {"to": root, "on_bad_record": "quarantine", "progress": False}
    commonest = r"Most often \(2 of 3 looked at\): .*raw/a.jsonl, row 1, byte .*missing field.*field 'text', which is missing"
    with pytest.raises(BadRecordBudgetError, match=commonest):
        dk.convert(raw, **options)

    def check_refused():
        (row,) = dk.status(root).rows
        assert (row.state, dk.status(root).exit_status) == ("over budget", 1)
        assert "3 of 6 rows are bad" in dk.status(root).notes[0]
        for read in READERS.values():
            with pytest.raises(
                BadRecordBudgetError, match="is over budget: at the end of convert 3 of 6 rows"
            ):
                read(root, tmp_path)

    check_refused()
    dk.convert(raw, **options, only=["b.jsonl"])  # good by itself
    check_refused()
    with pytest.raises(BadRecordBudgetError):
        dk.convert(raw, **options)
    check_refused()
    assert dk.convert(raw, **options, max_bad_fraction=0.5).done == 0  # what was lost is accepted
    assert (dk.status(root).rows[0].state, dk.status(root).exit_status) == ("done", 0)
    assert READERS["tag"](root, tmp_path).done == 2

    with pytest.raises(BadRecordBudgetError):
        dk.convert(raw, **options, max_bad_fraction=0.1, overwrite=True)
    write_lines(tmp_path / "raw/a.jsonl", [document(0), document(1)])
    assert dk.convert(raw, **options).done == 1
    assert READERS["mix"](root, tmp_path).counts["documents_out"] == 3


@pytest.mark.parametrize("file_format", ["jsonl.zst", "parquet"])
def test_output_formats(raw, tmp_path, file_format):
    dk.convert(str(raw), to=str(tmp_path / "v0"), source="s", format=file_format, progress=False)
    assert {path.suffix for path in (tmp_path / "v0/documents").rglob("*.*")} == {
        f".{file_format.rsplit('.')[-1]}"
    }


def test_attributes_to_flat_and_back(tagged):
    root = str(tagged)
    dk.convert(root, to=root, attributes="char_length_v1", form="flat", progress=False)
    flat = [json.loads(line) for line in read_lines(tagged / "attributes/char_length_v1-flat/x/a.jsonl.gz")]
    assert list(flat[0]) == ["source", "id", "char_length_v1__char_length_v1__length"]
    dk.convert(root, to=root, attributes="char_length_v1-flat", form="nested", rename="again", progress=False)
    old = [json.loads(line) for line in read_lines(tagged / "attributes/char_length_v1/x/a.jsonl.gz")]
    new = [json.loads(line) for line in read_lines(tagged / "attributes/again/x/a.jsonl.gz")]
    assert new == old
    summary = dk.mix(
        root, to=str(tagged.parent / "v1"), where="length > 5", attributes=["again"], progress=False
    )
    assert summary.counts["unproved_attribute_files"] == 0
    with pytest.raises(UsageError, match="in place"):
        dk.convert(root, to=root, attributes="again", rename="again")
    with pytest.raises(UsageError, match="inside their dataset"):
        dk.convert(root, to=str(tagged.parent / "v9"), attributes="again")


def test_numbered_raw_names_can_be_run_again(tmp_path):
    write_lines(tmp_path / "raw/wiki-part-00000.jsonl.gz", [document(0)])
    write_lines(tmp_path / "raw/wiki-part-00001.jsonl.gz", [document(1)])
    for _ in range(2):
        dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), progress=False)
        dk.mix(str(tmp_path / "v0"), to=str(tmp_path / "v1"), progress=False)
    assert names(tmp_path / "v1") == ["wiki-part-00000.jsonl.gz", "wiki-part-00001.jsonl.gz"]


def test_generated_ids_differ_between_files(tmp_path):
    for name in ("a.jsonl", "b.jsonl"):
        write_lines(tmp_path / "raw" / name, ['{"text": "t"}'])
    (tmp_path / "raw/c.txt").write_text("a text, called by its path")
    options = {"source": "s", "progress": False, "generated_id": "row-{row:03d}"}
    with pytest.raises(UsageError, match=r"a\.jsonl and b\.jsonl the same ids; .*'\{stem\}-\{row:08d\}'"):
        dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0"), **options)
    dk.convert(str(tmp_path / "raw/a.jsonl"), to=str(tmp_path / "v0"), **options)
    dk.convert(
        str(tmp_path / "raw"), to=str(tmp_path / "v1"), **{**options, "generated_id": "{stem!s}/{row}"}
    )
    assert [json.loads(line)["id"] for line in read_lines(tmp_path / "v1/documents/b.jsonl.gz")] == ["b/0"]


def test_generated_ids_differ_between_sources(tmp_path):
    ids = set()
    for name in ("one", "two"):
        write_lines(tmp_path / name / "a.jsonl", ['{"text":"t"}'])
        dk.convert(str(tmp_path / name), to=str(tmp_path / "v0"), under=name, source="s", progress=False)
        ids.add(json.loads(read_lines(tmp_path / f"v0/documents/{name}/a.jsonl.gz")[0])["id"])
    assert ids == {"one/a-00000000", "two/a-00000000"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"prune": 0}, "prune=0"), ({"prune": -1}, "prune=-1"), ({"shard_bytes": 0}, "shard_bytes=0")],
)
def test_numbers_that_make_no_sense(raw, tmp_path, wrong, message):
    with pytest.raises(UsageError, match=message):
        dk.convert(str(raw), to=str(tmp_path / "v0"), source="s", **wrong)


def test_a_target_inside_of_the_input_is_refused(raw, tmp_path):
    for to in (raw, raw / "v0"):
        with pytest.raises(UsageError, match="its own input"):
            dk.convert(str(raw), to=str(to), source="s")
    dk.convert(str(raw / "2019"), to=str(raw), source="s", progress=False)


def test_a_failing_run_leaves_the_parts_of_the_last_one(raw, tmp_path):
    options = {"to": str(tmp_path / "v0"), "source": "s", "shard_bytes": 1, "progress": False}
    dk.convert(str(raw), **options)
    before = names(tmp_path / "v0")
    write_lines(raw / "2019/a.jsonl.gz", ["nonsense"])
    with pytest.raises(StageError):
        dk.convert(str(raw), **options)
    assert names(tmp_path / "v0") == before


def test_a_target_that_names_its_documents_folder(tmp_path):
    write_lines(tmp_path / "raw/a.jsonl", [document(0)])
    dk.convert(str(tmp_path / "raw"), to=str(tmp_path / "v0/documents"), progress=False)
    assert (tmp_path / "v0/documents/a.jsonl.gz").exists()
    assert not (tmp_path / "v0/documents/documents").exists()


@pytest.mark.parametrize("given", ["rp/documents", "rp/documents/2022-49/0000", "rp/documents/*/*/de_*"])
def test_published_documents_have_their_ids_and_siblings_are_left_out(tmp_path, given):
    folder = tmp_path / "rp/documents/2022-49/0000"
    write_lines(folder / "de_head.json.gz", [json.dumps({"raw_content": text}) for text in "ab"])
    for name in ("de_head.signals.json.gz", "de_head.minhash.parquet", "de_head.duplicates.parquet"):
        write_lines(folder / name, ["{}"])
    out = tmp_path / "v0"
    summary = dk.convert(str(tmp_path / given), to=str(out), mapping="redpajama_v2", progress=False)
    (shard,) = (out / "documents").rglob("*.gz")
    ids = [json.loads(line)["id"] for line in read_lines(shard)]
    assert ids == ["2022-49/0000/de_head.json.gz/0", "2022-49/0000/de_head.json.gz/1"]
    assert "3 files left out" in summary.notes[0]


def test_signals_alone_are_no_documents(tmp_path):
    write_lines(tmp_path / "combined/en_signals.jsonl", ["{}"])
    with pytest.raises(UsageError, match=r"1 file of signals, MinHash or duplicates .*expected documents"):
        dk.convert(
            str(tmp_path / "combined"), to=str(tmp_path / "v0"), mapping="redpajama_v2", progress=False
        )


def test_a_trial_that_wrote_nothing_is_forgotten_once_its_source_has_a_folder(raw, tmp_path):
    to, source = str(tmp_path / "v0"), {"id": "url", "source": "web"}
    with pytest.raises(StageError):
        dk.convert(str(raw / "2020"), to=to, text="body", progress=False)
    assert dk.status(to).exit_status == 1
    dk.convert(str(raw / "2019"), to=to, under="one", progress=False)
    dk.convert(str(raw / "2020"), to=to, under="two", progress=False, **source)
    found = dk.status(to)
    assert [(row.writes, row.done, row.left) for row in found.rows] == [
        ("documents/one/", 1, 0),
        ("documents/two/", 1, 0),
    ]
    assert (found.exit_status, incomplete(to)) == (0, [])


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"overwrite": True, "dry_run": True}])
def test_documents_of_another_source_are_never_removed(raw, tmp_path, options):
    to = tmp_path / "v0"
    dk.convert(str(raw / "2019"), to=str(to), under="one", progress=False)
    before = names(to)
    with pytest.raises(UsageError, match=r"in documents/one/, first .*which --overwrite never does"):
        dk.convert(str(raw / "2020"), to=str(to), id="url", source="web", progress=False, **options)
    assert names(to) == before


def test_a_source_at_the_root_goes_on_beside_others(raw, tmp_path):
    to, rest = tmp_path / "v0", {"source": "s", "progress": False}
    write_lines(raw / "2019/b.jsonl", ["nonsense"])
    with pytest.raises(StageError):
        dk.convert(str(raw / "2019"), to=str(to), **rest)
    with pytest.raises(StageError):  # of its own folder: not forgotten, whatever happens at the root
        dk.convert(str(raw / "2020"), to=str(to), under="two", text="body", **rest)
    write_lines(raw / "2019/b.jsonl", [document(5)])
    assert dk.convert(str(raw / "2019"), to=str(to), **rest).done == 1
    left = {row.writes: row.left for row in dk.status(str(to)).rows}
    assert left == {"documents/": 0, "documents/two/": 1}
    dk.convert(str(raw / "2020"), to=str(to), under="two", id="url", **rest)
    again = dk.convert(str(raw / "2019"), to=str(to), overwrite=True, **rest)
    assert (again.done, again.notes) == (2, ())
    assert names(to) == ["a.jsonl.gz", "b.jsonl.gz", "two/b.jsonl.gz"]
    assert dk.status(str(to)).exit_status == 0


def test_what_a_run_at_the_root_made_is_no_output_of_a_folder(raw, tmp_path):
    to, rest = tmp_path / "v0", {"to": str(tmp_path / "v0"), "source": "s", "progress": False}
    dk.convert(str(raw), **rest)
    with pytest.raises(UsageError, match="not made by this command"):
        dk.convert(str(raw / "2019"), under="2019", **rest)
    write_lines(raw / "2019/c.jsonl", [document(7)])
    with pytest.raises(UsageError, match="in documents/, first 'documents/2019/a"):
        dk.convert(str(raw / "2019/c.jsonl"), under="2019", overwrite=True, **rest)
    assert names(to) == ["2019/a.jsonl.gz", "2020/b.jsonl.gz"]


@pytest.mark.parametrize(
    ("under", "advice"), [(None, "with --under FOLDER"), ("one", "with another --under F")]
)
def test_another_source_is_told_where_it_may_go(raw, tmp_path, under, advice):
    rest = {"to": str(tmp_path / "v0"), "under": under, "source": "s", "progress": False}
    dk.convert(str(raw / "2019"), **rest)
    with pytest.raises(UsageError, match=f"does not make.*Another source goes beside them {advice}"):
        dk.convert(str(raw / "2020"), **rest)


def test_notes_tell_what_was_removed_and_what_will_be(raw, tmp_path):
    to, rest = (
        tmp_path / "v0",
        {"to": str(tmp_path / "v0"), "source": "s", "overwrite": True, "progress": False},
    )
    dk.convert(str(raw / "2019"), **rest)
    other = str(raw / "2020")
    (note,) = [note for note in dk.convert(other, dry_run=True, **rest).notes if "of an earlier run" in note]
    assert "would be removed" in note
    with pytest.raises(StageError) as failed:
        dk.convert(other, text="body", **rest)
    assert "kept until all shards are done" in str(failed.value.details["summary"])
    assert names(to) == ["a.jsonl.gz"]
    assert "one, removed" in str(dk.convert(other, **rest))
    assert names(to) == ["b.jsonl.gz"]


def test_a_pattern_of_skip_that_matches_no_file_is_named(tmp_path):
    for name in "ab":
        write_lines(tmp_path / f"raw/{name}.jsonl", [json.dumps({"id": name, "text": "x"})])
    skip = ["b.jsonl", "raw/a.jsonl", "*.csv"]
    notes = dk.convert(
        str(tmp_path / "raw"), to=str(tmp_path / "v0"), source="s", skip=skip, progress=False
    ).notes
    assert [note for note in notes if "skip matches" in note] == [
        "skip matches no file: raw/a.jsonl, *.csv; paths begin below the input folder"
    ]
    assert "1 file left out by skip" in notes


def test_what_is_skipped_from_now_on_is_forgotten_with_its_documents(tmp_path):
    for name in "ab":
        write_lines(tmp_path / f"raw/{name}.jsonl", [json.dumps({"id": name, "text": "x"})])
    raw, to = str(tmp_path / "raw"), str(tmp_path / "v0")
    dk.convert(raw, to=to, source="s", progress=False)
    dk.convert(raw, to=to, source="s", skip=["b.jsonl"], overwrite=True, progress=False)
    assert [path.name for path in (tmp_path / "v0/documents").iterdir()] == ["a.jsonl.gz"]
    (row,) = dk.status(to).rows
    assert (row.done, row.left, dk.status(to).exit_status) == (1, 0, 0)
    assert dk.validate(to, progress=False).exit_status == 0
    assert dk.convert(raw, to=to, source="s", progress=False).done == 1
