"""tag with files of the user's: what is found, what is made again, what is refused."""

import json

import pytest

import dolma_dask as dk
from dolma_dask.errors import StageError, UsageError

from .conftest import read_lines, write_lines

KEY = "redpajama_v2_doc__redpajama_v2_doc__"


def rows():
    texts = {
        "en": "Kill the root password, kill it.",
        "de": "Das System ist für Benutzer größer.",
        "xx": "Kill",
    }
    for number, (language, text) in enumerate(texts.items()):
        metadata = {"language": language, "source_domain": f"{language}.example"}
        yield json.dumps({"id": str(number), "text": text, "source": "s", "metadata": metadata})


@pytest.fixture
def root(tmp_path):
    write_lines(tmp_path / "v0/documents/a.jsonl.gz", list(rows()))
    lists = tmp_path / "lists"
    (lists / "bad_words").mkdir(parents=True)
    (lists / "bad_words/en.txt").write_text("kill\nroot password\n kill it \r\nKill\n")
    (lists / "bad_words/de.txt").write_text("\n")
    (lists / "bad_urls").mkdir()
    (lists / "bad_urls/domain_to_category_id.json").write_text('{\n "en.example": 8,\n "xx.example": 8190\n}')
    return tmp_path


def signals(root, name):
    lines = read_lines(root / "v0/attributes/redpajama_v2_doc/a.jsonl.gz")
    found = [json.loads(line)["attributes"].get(KEY + name) for line in lines]
    return [None if spans is None else spans[0][2] for spans in found]


def tag(root, **options):
    return dk.tag(str(root / "v0"), "redpajama_v2_doc", progress=False, **options)


@pytest.mark.parametrize("scheduler", ["synchronous", "processes"])
def test_documents_are_compared_with_the_lists_of_their_language(root, scheduler):
    tag(root, artifacts=str(root / "lists"), scheduler=scheduler)
    assert signals(root, "rps_doc_ldnoobw_words") == [4.0, 0.0, None]
    assert signals(root, "rps_doc_ut1_blacklist") == [8.0, None, 8190.0]
    assert signals(root, "rps_doc_stop_word_fraction") == [round(2 / 8, 8), round(2 / 7, 8), None]


def test_without_files_there_are_no_such_signals(root):
    tag(root)
    assert signals(root, "rps_doc_ldnoobw_words") == signals(root, "rps_doc_ut1_blacklist") == [None] * 3
    assert signals(root, "rps_doc_word_count") == [6.0, 6.0, 1.0]


def test_stop_words_of_the_user_take_the_place_of_those_shipped(root):
    (root / "lists/stop_words").mkdir()
    (root / "lists/stop_words/xx.txt").write_text("Kill\n")
    (root / "lists/stop_words/en.txt").write_text("password\n")
    tag(root, artifacts=str(root / "lists"))
    assert signals(root, "rps_doc_stop_word_fraction") == [round(1 / 8, 8), round(2 / 7, 8), 1.0]


def test_a_changed_list_is_read_and_tagged_with_again(root):
    lists = root / "lists"
    assert tag(root, artifacts=str(lists)).done == 1
    assert tag(root, artifacts=str(lists)).done == 0
    (lists / "notes.txt").write_text("no list")
    assert tag(root, artifacts=str(lists)).done == 0
    (lists / "bad_words/en.txt").write_text("password\n")
    assert tag(root, artifacts=str(lists)).done == 1
    assert signals(root, "rps_doc_ldnoobw_words") == [1.0, 0.0, None]


def test_the_lists_of_ut1_stand_in_for_the_numbers_of_domains(root):
    (root / "lists/bad_urls/domain_to_category_id.json").unlink()
    for category, domains in {
        "adult": "en.example\n",
        "porn": "xx.example\nen.example\n",
        "news": "de.example",
    }.items():
        (root / "lists/blacklists" / category).mkdir(parents=True)
        (root / "lists/blacklists" / category / "domains").write_text(domains)
    tag(root, artifacts=str(root / "lists"))
    assert signals(root, "rps_doc_ut1_blacklist") == [23.0, None, 11.0]


def test_files_that_nobody_uses_are_refused(root):
    with pytest.raises(UsageError, match="none of the taggers char_length_v1 uses files"):
        dk.tag(str(root / "v0"), "char_length_v1", artifacts=str(root / "lists"), progress=False)
    with pytest.raises(
        UsageError, match=r"v0 has no file .* expected bad_words/\*.txt or .*for redpajama_v2_doc\."
    ):
        tag(root, artifacts=str(root / "v0"))


@pytest.mark.parametrize("content", ["[]", '{"a.example": "8"}', '{"a.example": 8', "", '{"a": 1} {"b": 2}'])
def test_domains_in_another_form_are_refused(root, content):
    (root / "lists/bad_urls/domain_to_category_id.json").write_text(content)
    with pytest.raises(StageError, match=r"domain_to_category_id\.json: .*expected a JSON object"):
        tag(root, artifacts=str(root / "lists"))
