"""The command line: help with an example for each verb, exit statuses, errors that say what to do."""

import json

import pytest

from dolma_dask import cli


@pytest.mark.parametrize("command", sorted(cli._COMMANDS))
def test_every_command_has_help_with_an_example(command, capsys):
    assert cli.main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Example:" in shown
    assert f"dolma-dask {command}" in " ".join(shown.replace("│", " ").split())


@pytest.mark.parametrize(
    "words", [["tga", "x"], ["tag"], ["tag", "x", "--nonsense"], ["mix", "x", "--to", "y", "--prune", "many"]]
)
def test_wrong_usage_is_status_2(words, capsys):
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert "Error" in captured.out + captured.err


def test_no_dataset_says_what_was_expected(tmp_path, capsys):
    assert cli.main(["tag", str(tmp_path), "--taggers", "gopher_v2"]) == 2
    shown = capsys.readouterr().err
    assert "holds no document files" in shown
    assert ".jsonl.gz" in shown
    assert "dolma-dask convert" in shown


def test_summary_as_json(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.jsonl").write_text('{"id":"1","text":"one","source":"s"}\n')
    words = [
        "convert",
        str(tmp_path / "raw"),
        "--to",
        str(tmp_path / "v0"),
        "--scheduler",
        "synchronous",
        "--json",
    ]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["documents_out"] == 1


def test_failed_shard_is_status_1_and_named(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    good = '{"id":"1","text":"one","source":"s"}\n'
    (tmp_path / "raw" / "good.jsonl").write_text(good)
    (tmp_path / "raw" / "bad.jsonl").write_text(good + "nonsense\n")
    words = ["convert", str(tmp_path / "raw"), "--to", str(tmp_path / "v0"), "--scheduler", "synchronous"]
    assert cli.main(words) == 1
    captured = capsys.readouterr()
    assert "FAILED bad.jsonl.gz" in captured.out
    assert f"row 1, byte {len(good)}" in captured.out
    assert (tmp_path / "v0/documents/good.jsonl.gz").exists()
    assert not (tmp_path / "v0/documents/bad.jsonl.gz").exists()
    assert cli.main([*words, "--on-bad-record", "quarantine", "--max-bad-fraction", "0.5"]) == 0
    line = json.loads((tmp_path / "v0/_quarantine/convert/bad.jsonl.gz.jsonl").read_text())
    assert (line["row"], line["byte_offset"], line["reason"]) == (1, len(good), "invalid_json")
