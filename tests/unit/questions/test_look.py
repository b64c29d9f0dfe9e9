"""look: what raw files hold, and commands that convert them as they stand."""

import gzip
import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dolma_dask as dk
from dolma_dask import cli
from dolma_dask.errors import UsageError
from dolma_dask.questions.look.question import Look

TEXT = "Die Katze sitzt auf der Matte, und das ist auch gut so. " * 6
LINES = "".join(json.dumps({"url": f"u{n}", "body": f"{n} {TEXT}", "date": "2024"}) + "\n" for n in range(3))
DOCUMENTS = "".join(json.dumps({"id": str(n), "text": TEXT, "source": "s"}) + "\n" for n in range(3))
MANY = "".join(json.dumps({"url": f"u{n}", "body": f"{n} {TEXT}"}) + "\n" for n in range(120))
SHORT = '{"article": "a b"}\n'
TABLE = "id,article,n\n" + "".join(f"{n},{TEXT.replace(',', '')},7\n" for n in range(3))
MAIL = f"From b Mon Jan  1 12:00:00 2024\nMessage-ID: <1@x.org>\nSubject: s\n\n{TEXT}\n"

FOLDERS = {
    "lines": ({"a.jsonl": LINES, "b.jsonl": LINES.replace('"u', '"v')}, 6),
    "documents": ({"a.jsonl": DOCUMENTS}, 3),
    "latin": ({"a.txt": "Füße\n".encode("latin-1"), "b.txt": TEXT, "_SUCCESS": ""}, 2),
    "odd": ({"a.txt": TEXT, "READ ME": "", "x/b.pdf": "", "x/c.pdf": ""}, 1),
    "table": ({"a.csv": TABLE}, 3),
    "mail": ({"a.mbox": MAIL, "box/cur/17.M1.host:2,S": MAIL.partition("\n")[2].replace("<1@", "<2@")}, 2),
    "different": (
        {"a.csv": TABLE, "a.jsonl": LINES, "n.md": TEXT, "box/new/17.M1.host": "Subject: x\n\ny\n"},
        8,
    ),
    "damaged": ({"a.jsonl": MANY + '{"body": NaN}\n' + '{"url": "w"}\n'}, 120),
    "sources": (
        {"forum/a.jsonl": LINES, "forum/README.md": "x", "news/x/b.jsonl": DOCUMENTS, "c.jsonl": SHORT},
        8,
    ),
    "nested": ({"2020/forum/a.jsonl": LINES, "2020/news/b.jsonl": DOCUMENTS, "2021/n.pdf": ""}, 6),
    "same ids": ({"a.csv": TABLE.replace("article", "text"), "b.jsonl": DOCUMENTS}, 6),
}
COMMANDS = {"different": 4, "sources": 4, "nested": 2, "same ids": 2}


def written(folder: Path, contents: dict[str, str | bytes]) -> str:
    for name, data in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
    return str(folder)


def converted(answer: Look, to: Path) -> int:
    """Run the proposed commands with another target; return the number of documents."""
    for line in answer.commands:
        words = shlex.split(line)[1:]
        words[words.index("--to") + 1] = str(to)
        assert cli.main([*words, "--no-progress"]) == 0, line
    made = dk.read_bag(str(to)).compute(scheduler="sync")
    assert len({(one["source"], one["id"]) for one in made}) == len(made)
    return len(made)


@pytest.mark.parametrize("name", FOLDERS)
def test_the_proposed_command_converts_the_folder(tmp_path, name, capsys):
    contents, documents = FOLDERS[name]
    answer = dk.look(written(tmp_path / "my raw", contents))
    assert converted(answer, tmp_path / "v0") == documents
    assert len(answer.commands) == COMMANDS.get(name, 1)


@pytest.mark.parametrize(
    ("contents", "commands", "said"),
    [
        ({"a.json": json.dumps([{"text": "x"}] * 9)}, 0, "100 % of the records looked at are bad; .*jq"),
        (
            {"a.jsonl": LINES, "b.jsonl": DOCUMENTS},
            1,
            r"50.0 % have no 'text', such as those of a.jsonl, but these fields: .*body",
        ),
        ({"a.jsonl": LINES + "x\n"}, 1, r"25.0 % of the records looked at are bad; .*row 3.*invalid json"),
        (
            {"a.jsonl": MANY, "b.jsonl": SHORT},
            1,
            r"0.8 % have no 'body', such as those of b.jsonl, but these fields: .*article",
        ),
        (
            {"a.jsonl": "", "b.jsonl": '{"text": null, "n": 1}\n' + DOCUMENTS},
            1,
            r"have no 'text', but these fields",
        ),
        ({"a.json": "[1]", "x/b.jsonl": LINES}, 1, r"jsonl in \.: 100 %"),
        ({"a.jsonl.gz": gzip.compress(b""), "a.jsonl.zst": b"", "b.jsonl": LINES}, 1, "--skip a.jsonl.zst"),
        ({"a.jsonl": LINES, "README.md": "x"}, 1, "README.md. .*--skip README.md"),
    ],
)
def test_no_command_sets_many_records_aside(tmp_path, contents, commands, said):
    answer = dk.look(written(tmp_path / "raw", contents))
    assert len(answer.commands) == commands
    assert not any("quarantine" in line for line in answer.commands)
    assert any(re.search(said, note) for note in answer.notes), answer.notes


def test_what_is_allowed_is_of_the_files_of_the_command(tmp_path):
    answer = dk.look(written(tmp_path / "raw", {"a/a.jsonl": MANY + "x\n", "b/b.jsonl": DOCUMENTS}))
    allowed = {line.partition("--under ")[2][0]: line.partition("fraction ")[2] for line in answer.commands}
    assert allowed == {"a": "0.017", "b": ""}


def test_files_that_were_not_given_are_in_no_command(tmp_path):
    raw = written(tmp_path / "raw", {"a.jsonl": LINES, "b.csv": TABLE, "c.jsonl": SHORT, "x/d.csv": "id\n"})
    assert converted(dk.look([f"{raw}/a.jsonl", f"{raw}/*.csv"]), tmp_path / "v0") == 6


def test_each_command_has_a_folder_of_its_own(tmp_path):
    answer = dk.look(written(tmp_path / "raw", {"a/b/x.jsonl": LINES, "a-b/x.jsonl": DOCUMENTS}))
    assert converted(answer, tmp_path / "v0") == 6


def test_files_in_many_folders_are_one_command_if_their_fields_are_the_same(tmp_path):
    contents = {f"{n}/a.jsonl": DOCUMENTS.replace('"id": "', f'"id": "{n}-') for n in range(30)}
    answer = dk.look(written(tmp_path / "raw", contents))
    assert len(answer.commands) == 1


def test_what_is_in_a_folder_is_said(tmp_path):
    answer = dk.look(
        written(tmp_path / "raw", {"a.jsonl": LINES + LINES, "b.txt": "<p>Füße</p>".encode("latin-1")})
    )
    assert answer.facts["text"].startswith("body (jsonl); ")
    assert answer.facts["copies"] == "3 have the words of an earlier one"
    assert answer.facts["languages"].startswith("de 85.7 %")
    shown = str(answer)
    assert "jsonl  url    100 %  text" in shown
    assert "tags of HTML" in shown
    assert "cp1252" in shown
    assert "--text body --created date --source raw --encoding auto" in answer.commands[0]


def test_ids_are_proposed_where_each_record_has_its_own(tmp_path):
    answer = dk.look(written(tmp_path / "raw", {"a.jsonl": LINES}))
    assert "--id url" in answer.commands[0]
    assert answer.facts["ids"] == "url: 3 different ones in 3 records"


@pytest.mark.parametrize(
    ("record", "option"),
    [
        ({"doc_uuid": "u{}", "url": "http://{}"}, "--id doc_uuid"),
        ({"meta": {"id": "a{}"}, "url": "http://{}"}, "--id meta.id"),
        ({"warc": {"url": "http://{}"}}, "--id warc.url"),
        ({"crawl_date": "2024-01-0{}"}, "--created crawl_date"),
        ({"author_id": "a{}"}, "--source raw"),
        ({"meta": {"id": "the same"}}, "--source raw"),
    ],
)
def test_ids_and_dates_are_found_by_the_end_of_a_name(tmp_path, record, option):
    lines = "".join(
        json.dumps({"text": f"text {n}"} | record).replace("{}", str(n)) + "\n" for n in range(1, 4)
    )
    (command,) = dk.look(written(tmp_path / "raw", {"a.jsonl": lines})).commands
    assert option in command
    assert command.count("--") == (3 if option != "--source raw" else 2)


def test_a_dataset_is_not_converted(tmp_path):
    raw = written(tmp_path / "raw", {"a.jsonl": LINES})
    root = str(tmp_path / "v0")
    dk.convert(raw, to=root, text="body", source="s", progress=False)
    for _ in range(2):
        answer = dk.look(root)
        assert not answer.commands
        assert "is a dataset already" in answer.notes[0]
        assert len(answer.notes) == 1
        assert answer.facts["looked at"] == "3 documents"
        dk.tag(root, ["char_length_v1"], progress=False)


def test_a_table_of_parquet_is_looked_at(tmp_path):
    (tmp_path / "raw").mkdir()
    pq.write_table(pa.table({"content": [TEXT], "meta": [{"url": "u"}]}), tmp_path / "raw/a.parquet")
    answer = dk.look(str(tmp_path / "raw"))
    assert "meta.url" in str(answer)
    assert converted(answer, tmp_path / "v0") == 1


def test_the_page_replaces_none_of_others(tmp_path):
    raw = written(tmp_path / "raw", {"<a>.txt": "x"})
    page = tmp_path / "page.html"
    for _ in range(2):
        assert dk.look(raw, to=str(page)).page == str(page)
    assert "to convert it" in page.read_text()
    page.write_text("mine")
    with pytest.raises(UsageError, match="no page of look"):
        dk.look(raw, to=str(page))


def test_a_folder_without_documents_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"no file with documents: 1 file of no kind .* a\.pdf"):
        dk.look(written(tmp_path / "raw", {"a.pdf": ""}))


def test_fields_without_a_value_are_named_and_none_that_the_source_adds(tmp_path):
    rows = [{"content": TEXT, "lang": None, "url": f"u{n}"} for n in range(3)]
    pq.write_table(
        pa.Table.from_pylist(rows, pa.schema(dict.fromkeys(rows[0], pa.string()))), tmp_path / "a.parquet"
    )
    (tmp_path / "b.csv").write_bytes("id,text\n1,café noir est bon pour la santé\n".encode("cp1252"))
    fields = [line.split()[:4] for line in str(dk.look(str(tmp_path))).splitlines()]
    assert ["parquet", "lang", "0", "%"] in fields
    assert [words[1] for words in fields if words[:1] == ["csv"] and words[2] == "100"] == ["id", "text"]
