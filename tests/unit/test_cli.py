"""The command line: help with an example for each verb, exit statuses, errors that say what to do."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from dolma_dask import __version__, cli
from dolma_dask.pipelines.signatures import spellings
from dolma_dask.registry import COMMANDS
from dolma_dask.taggers import gopher


def first_words() -> list[str]:
    """Commands as they stand in the list: those of two words by the first."""
    return list(dict.fromkeys(name.split()[0] for name in COMMANDS))


SYNCHRONOUS = ("--scheduler", "synchronous")


@pytest.fixture
def help_of(capsys):
    """Return the help of a command."""

    def shown(command):
        assert cli.main([*command.split(), "--help"]) == 0
        return capsys.readouterr().out

    return shown


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_an_example_and_something_of_every_option(command, help_of):
    shown = help_of(command)
    words = " ".join(shown.replace("│", " ").split())
    assert f"Example: dolma-dask {command}" in words
    assert "RULE" not in words, "types of Python mean nothing here"
    for box in re.findall(r"╭[^╮]*╮\n(.*?)╰", shown, re.DOTALL):
        rows = [line[1:-1].replace("*", " ") for line in box.splitlines()]
        indent = min(len(row) - len(row.lstrip()) for row in rows)
        starts = [at for at, row in enumerate(rows) if row[indent] != " "]
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            said = [word for word in " ".join(rows[start:end]).split() if not word.startswith("--")]
            assert len(said) >= 3, f"{command}: nothing is said of {rows[start]}"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_speaks_the_language_of_the_command_line(command, help_of):
    shown = re.sub(r"[│\s]+", " ", help_of(command)).replace("is not None", "").replace("is None", "")
    names = spellings(COMMANDS[command].load())
    of_python = [name for name in names if "_" in name and re.search(rf'(?<![\w"]){name}(?![\w"])', shown)]
    assert of_python == []
    assert [name for name in names if re.search(rf"`{name}`|\b{name}=", shown)] == []
    assert not re.search(r"\b(None|True|False|Raises|(In|From|in|from) Python)\b", shown)


@pytest.mark.slow
def test_commands_and_options_stand_in_the_order_of_work(help_of, capsys):
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^│ ([a-z][a-z0-9-]+) ", shown, re.MULTILINE) == [*first_words(), "completion"]
    titles = re.findall(r"╭─ (.*?) ─", help_of("mix"))
    assert titles == ["Arguments", "Options", "What to work on", "Output", "Bad records", "Where it runs"]
    every = [" ".join(text.split()) for text in re.split(r"│ +--", help_of("mix").replace("│\n│ ", ""))]
    meanings = [re.sub(r"^\S+( --no-\S+)? (STR|INT|FLOAT|CHOICE)?(\.\.\.)?", "", text) for text in every]
    assert len(set(meanings)) == len(meanings)
    for sign in ["==", "!=", "<", "<=", ">", ">=", "in", "+", "-", "*", "/", "and", "or", "not"]:
        assert f" {sign}" in " ".join(help_of("mix").split())


def test_a_mistyped_option_that_is_needed(capsys):
    assert cli.main(["tag", "x", "--tagger", "gopher_v2"]) == 2
    assert "unknown option --tagger; did you mean --taggers?" in capsys.readouterr().err
    assert cli.main(["convert", "raw", "--text", "body"]) == 2
    assert "--to is missing" in capsys.readouterr().err, "another option is no mistyped one"
    assert cli.main(["completion"]) == 2
    assert "SHELL is missing" in capsys.readouterr().err
    assert cli.main(["mix", "v0", "--to", "v1", "--max-size", "1MB"]) == 2
    assert "A whole number is digits alone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("quantiles v0 word_count", "--signals word_count?"),
        ("quantiles v0 line_count --signals word_count", "--signals line_count?"),
        ("tag v0 gopher_v2 c4", "--taggers is missing; did you mean --taggers gopher_v2 c4?"),
        ("convert raw v0", "--to is missing; did you mean --to v0?"),
        ("dedupe v0 fuzzy", "--how fuzzy?"),
        ("dedupe v0 v1", "--others v1?"),
        ("mix v0 v1", "--to v1?"),
        ("report v0 page.html", "--to page.html?"),
        ("validate v0 gopher", "--attributes gopher?"),
        (
            "status v0 x y",
            "x y: no option is named before it in dolma-dask status; expected none; leave them out.",
        ),
    ],
)
def test_words_without_a_name_are_given_one(words, meant, capsys):
    assert cli.main(words.split()) == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["dedupe", "x", "--fuzzy"], "unknown option --fuzzy; did you mean --how fuzzy?"),
        (["dedupe", "x", "--threshold=0.8"], "unknown option --threshold; did you mean --similarity?"),
        (["dedupe", "x", "--similarty", "0.8"], "Did you mean --similarity?"),
        (["lengths", "x", "--tokenizer", "t"], "Unknown option: --tokenizer. Help"),
        (["tag", "x", "--taggers", "a", "--fuzzy"], "Unknown option: --fuzzy. Help"),
        (
            ["ragged", "x", "--to", "out", "--tokenizer", "t"],
            "--to is no option; write its value without a name: dolma-dask ragged DATASET TO.",
        ),
        (["rule-overlap", "x", "--where=a > 1"], "without a name: dolma-dask rule-overlap DATASET WHERE."),
        (["list", "fuzzy"], "'fuzzy' is no tagger: dedupe makes"),
    ],
)
def test_words_of_other_tools_are_answered(words, meant, capsys):
    assert cli.main(words) == 2
    assert meant in capsys.readouterr().err


def test_help_shows_every_sign_and_notes_below_the_options(help_of):
    ragged, convert = (" ".join(help_of(name).replace("│", " ").split()) for name in ("ragged", "convert"))
    assert "<name>.<i>-of-<n>.data.npy" in ragged
    assert '--eos "</s>"' in ragged
    for name in ("bos", "eos"):
        assert f"--{name} STR Token to put" in ragged
    for name in ("id", "text", "added", "created"):
        assert f"--{name} STR Field that becomes" in convert
    assert "--where STR " in help_of("mix")
    assert "--probabilities FLOAT..." in help_of("quantiles")
    validate = help_of("validate")
    assert validate.index("--workers") < validate.index("duplicate_id          a (source, id)")
    assert validate.rstrip().endswith("Every command takes --json (print the summary as JSON).")


@pytest.mark.parametrize("rule", ["word_count 20", "word_count = 20 and exact is None --dry-run"])
def test_a_rule_without_quotes_is_told_to_have_them(rule, tmp_path, capsys):
    assert cli.main(["mix", "v0", "--to", str(tmp_path), "--where", *rule.split()]) == 2
    shown = capsys.readouterr().err
    assert (
        "more than the value of --where; expected the whole rule in quotes: --where 'word_count >= 50'"
        in shown
    )
    assert "did you mean" not in shown


def test_what_is_no_number_is_told_how_numbers_are_written(tmp_path, capsys):
    assert cli.main(["mix", "v0", "--to", str(tmp_path), "--sample", "10%"]) == 2
    assert "A number is written as 0.1" in capsys.readouterr().err


def test_no_dataset_says_what_was_expected(tmp_path, capsys):
    assert cli.main(["tag", str(tmp_path), "--taggers", "gopher_v2"]) == 2
    shown = capsys.readouterr().err
    assert "holds no document files" in shown
    assert ".jsonl" in shown
    assert "dolma-dask convert" in shown


def test_failed_shard_is_status_1_and_named(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    good = '{"id":"1","text":"one","source":"s"}\n'
    (tmp_path / "raw" / "good.jsonl").write_text(good)
    (tmp_path / "raw" / "bad.jsonl").write_text(good + "nonsense\n")
    words = ["convert", str(tmp_path / "raw"), "--to", str(tmp_path / "v0"), *SYNCHRONOUS]
    assert cli.main(words) == 1
    captured = capsys.readouterr()
    assert "FAILED bad.jsonl.gz" in captured.out
    assert f"row 1, byte {len(good)}" in captured.out
    assert (tmp_path / "v0/documents/good.jsonl.gz").exists()
    assert not (tmp_path / "v0/documents/bad.jsonl.gz").exists()
    assert cli.main([*words, "--on-bad-record", "quarantine", "--max-bad-fraction", "0.5"]) == 0
    line = json.loads((tmp_path / "v0/_quarantine/convert/bad.jsonl.gz.jsonl").read_text())
    assert (line["row"], line["byte_offset"], line["reason"]) == (1, len(good), "invalid_json")


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "v0/documents").mkdir(parents=True)
    for name in ("a", "b"):
        (tmp_path / f"v0/documents/{name}.jsonl").write_text('{"id":"1","text":"one two","source":"s"}\n')
    return tmp_path


@pytest.fixture
def lake(tmp_path, monkeypatch):
    """A root of three datasets, one of them with a bad row."""
    for path in ("sources/web/v0", "sources/wiki/v0", "flat/v0"):
        (tmp_path / path / "documents").mkdir(parents=True)
        (tmp_path / path / "documents/a.jsonl").write_text('{"id":"1","text":"one two","source":"s"}\n')
    with (tmp_path / "sources/web/v0/documents/a.jsonl").open("a") as file:
        file.write("nonsense\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_dataset_by_source_and_version(lake, capsys):
    here = ["--source", "wiki", "--version", "v0"]
    assert cli.main(["tag", ".", *here, "--taggers", "char_length_v1", *SYNCHRONOUS]) == 0
    assert (lake / "sources/wiki/v0/attributes/char_length_v1/a.jsonl").exists()
    (lake / "ids.txt").write_text("1\n")
    for words in (
        ["validate", "."],
        ["quantiles", "."],
        ["dedupe", "."],
        ["block", ".", "ids.txt"],
        ["mix", ".", "--to", "v1", "--where", "length > 2"],
        ["report", ".", "--to", "page.html"],
    ):
        assert cli.main([*words, *here, *SYNCHRONOUS]) == 0, words
    capsys.readouterr()
    assert cli.main(["status", ".", *here]) == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in ("validate", "tag", "quantiles", "dedupe", "block"))
    words = ["tag", ".", "--source", "flat", "--version", "v0", "--taggers", "char_length_v1", *SYNCHRONOUS]
    assert cli.main(words) == 0
    assert (lake / "flat/v0/attributes/char_length_v1/a.jsonl").exists()
    assert cli.main(["status", ".", "--version", "v0"]) == 2
    assert "`version` was given without `source`" in capsys.readouterr().err


def test_a_missing_root_and_an_unknown_version(lake, capsys):
    call = ["tag", "--source", "web", "--version", "v0", "--taggers", "char_length_v1", *SYNCHRONOUS]
    assert cli.main(call) == 2
    root = re.search(r"sources/<source>/<version>: (\S+) for this folder, or s3://", capsys.readouterr().err)[
        1
    ]
    assert cli.main(["tag", root, *call[1:], "--dry-run"]) == 0
    (lake / "sources/web/v0").rename(lake / "sources/web/v1")
    assert cli.main(["tag", root, *call[1:]]) == 2
    assert f"1 dataset below {lake}/sources/web: v1" in capsys.readouterr().err
    call[2] = "wob"
    assert cli.main(["tag", root, *call[1:]]) == 2
    assert f"2 datasets below {lake}/sources: web/v1, wiki/v0" in capsys.readouterr().err


def test_the_version_alone_is_that_of_the_program(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
    for words in (
        ["list", "--version"],
        ["--version", "list"],
        ["tag", "x", "--version"],
        ["-c", "mixer.yaml", "mix", "--version"],
    ):
        assert cli.main(words) == 2, words


def test_a_root_of_datasets(lake, capsys):
    assert cli.main(["validate", ".", *SYNCHRONOUS]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(f"validate of 3 datasets below {lake}\n")
    assert "bad_record: 1" in shown
    assert shown.endswith("look at sources/web/v0\n")
    (lake / "sources/web/v0/documents/a.jsonl").write_bytes(b"\xff" * 10)
    for path in ("sources/web/v0", "sources/wiki/v0"):
        cli.main(["tag", path, "--taggers", "char_length_v1", *SYNCHRONOUS])
    capsys.readouterr()
    assert cli.main(["status", ".", "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    states = {one["dataset"]: one["exit_status"] for one in content["datasets"]}
    assert states == {"flat/v0": 0, "sources/web/v0": 1, "sources/wiki/v0": 0}
    assert content["exit_status"] == 1


def test_what_is_of_one_dataset_is_refused_for_a_root(lake, capsys):
    assert cli.main(["validate", ".", "--to", "report.json"]) == 2
    assert "--to is of one dataset" in capsys.readouterr().err
    assert cli.main(["validate", ".", "--attributes", "none"]) == 2
    assert "no attribute set 'none'" in capsys.readouterr().err
    assert cli.main(["tag", ".", "--taggers", "char_length_v1"]) == 2
    assert "3 datasets below .: flat/v0, sources/web/v0, sources/wiki/v0" in capsys.readouterr().err


def error_of(captured):
    """The error on standard output, which must be one JSON value; its text stands on standard error too."""
    content = json.loads(captured.out)
    assert set(content) == {"error", "summary", "exit_status"}
    assert content["error"]["message"] in captured.err
    return content


@pytest.mark.parametrize("only", [["--only"], ["--only", ""], ["--attributes"], ["--attributes", ""]])
def test_a_list_with_nothing_in_it_is_refused(corpus, only, capsys):
    words = ["mix", f"{corpus}/v0", "--to", f"{corpus}/v1", *SYNCHRONOUS]
    assert cli.main([*words, *only]) == 2
    assert f"`{only[0][2:]}` was given with nothing in it" in capsys.readouterr().err
    assert not (corpus / "v1").exists()


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["ragged", "x/v0", "--tokenizer", "t"], "TO"),
        (["ragged", "--tokenizer", "t"], "DATASET"),
        (["ragged", "x/v0", "out"], "--tokenizer"),
        (["tag", "x/v0"], "--taggers"),
        (["report", "x/v0"], "--to"),
    ],
)
def test_the_missing_argument_is_named(words, missing, capsys):
    assert cli.main(words) == 2
    assert (
        f"UsageError: {missing} is missing; expected it in dolma-dask {words[0]}." in capsys.readouterr().err
    )


def test_taggers_are_an_option_on_the_command_line(corpus, capsys):
    assert cli.main(["tag", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Usage: dolma-dask tag --taggers STR... [OPTIONS] DATASET\n" in shown
    words = ["tag", f"{corpus}/v0", "--taggers", "char_length_v1", "whitespace_tokenizer_v1"]
    assert cli.main([*words, *SYNCHRONOUS]) == 0
    assert {path.name for path in (corpus / "v0/attributes").iterdir()} == set(words[3:])


def test_list_is_a_table_or_json(capsys):
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    assert "gopher_v2" in shown
    assert max(map(len, shown.splitlines())) <= 100, "where it is piped"
    assert cli.main(["list", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["exit_status"] == 0
    assert {"char_length_v1", "gopher_v2"} <= {row["name"] for row in content["taggers"]}


def test_list_of_a_tagger_shows_its_attributes(capsys):
    assert cli.main(["list", "gopher_v2"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"word_count +number +words between white space", shown)
    assert re.search(r"Family gopher; scores documents; [\d.,]+ MB of text per CPU-second\.", shown)
    assert cli.main(["list", "gopher_v2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["taggers"]
    assert [one["name"] for one in row["attributes"]] == list(gopher.TYPES)
    assert all(one["meaning"] for one in row["attributes"])
    assert cli.main(["list", "gopher_v3"]) == 2
    assert "did you mean 'gopher_v2'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("dolma_v1_tokenizer", "Needs --tokenizer."),
        ("contamination", "Needs --against."),
        ("blocklist_hosts_porn_v1", "Where to get it: Published by github.com/StevenBlack/hosts"),
        ("uniseg_length_paragraphs_with_empty_v1", "scores paragraphs, blank ones too"),
    ],
)
def test_list_of_a_tagger_says_what_it_needs(name, needed, capsys):
    assert cli.main(["list", name]) == 0
    assert needed in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["tag", "nowhere", "--taggers", "gopher_v2"],
        ["tag", "x", "--nonsense"],
        ["mix", "x", "--to", "y", "--prune", "many"],
        ["quantiles", "x", "--by", "none", "--probabilities", "0.5", "x"],
        ["tga", "x"],
    ],
)
def test_wrong_usage_is_status_2(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*words, "--json"]) == 2
    content = error_of(capsys.readouterr())
    assert (content["error"]["type"], content["summary"], content["exit_status"]) == ("UsageError", None, 2)


def test_failures_as_json(corpus, capsys):
    with (corpus / "v0/documents/a.jsonl").open("a") as file:
        file.write("nonsense\n")
    words = ["mix", f"{corpus}/v0", "--to", f"{corpus}/v1", *SYNCHRONOUS, "--json"]
    assert cli.main(words) == 1
    content = error_of(capsys.readouterr())
    assert content["error"]["type"] == "StageError"
    assert [failure["shard"] for failure in content["summary"]["failures"]] == ["a.jsonl"]
    assert content["summary"]["done"] == content["exit_status"] == content["summary"]["exit_status"] == 1
    assert cli.main([*words, "--on-bad-record", "quarantine"]) == 1
    content = error_of(capsys.readouterr())
    assert content["error"]["type"] == "BadRecordBudgetError"
    assert content["summary"]["counts"]["bad_records"] == 1


def test_lost_rows_are_in_the_json(corpus, capsys):
    with (corpus / "v0/documents/a.jsonl").open("a") as file:
        file.write("nonsense\n")
    words = ["tag", f"{corpus}/v0", "--taggers", "char_length_v1", "--on-bad-record", "quarantine", "--json"]
    assert cli.main([*words, *SYNCHRONOUS]) == 1
    content = json.loads(capsys.readouterr().out)
    assert (content["lost"], content["exit_status"], content["counts"]["bad_records"]) == (True, 1, 1)


def test_what_the_system_refuses_is_one_line(corpus, capsys):
    (corpus / "file").write_text("")
    words = ["mix", f"{corpus}/v0", "--to", f"{corpus}/file", *SYNCHRONOUS]
    assert cli.main(words) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("StoreAccessError: ")
    assert f"{corpus}/file" in captured.err
    assert "permissions" in captured.err
    assert cli.main([*words, "--json"]) == 1
    assert error_of(capsys.readouterr())["error"]["type"] == "StoreAccessError"


def test_errors_of_the_system_without_a_path(monkeypatch, capsys):
    def refuse(words):
        raise TimeoutError("no\nanswer")

    monkeypatch.setattr(cli, "_call", refuse)
    assert cli.main(["list"]) == 1
    assert capsys.readouterr().err.startswith("TimeoutError: no answer. Look at the disk and the connection")


def test_ctrl_c_as_json(monkeypatch, capsys):
    def stop(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_call", stop)
    assert cli.main(["list", "--json"]) == 130
    assert error_of(capsys.readouterr())["exit_status"] == 130


# ------------------------------------------------------------------------------------------------ other forms


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-c"], "-c without a file and a command; expected dolma-dask -c FILE COMMAND"),
        (["-c", "mixer.yaml"], "-c without a file and a command"),
        (["--config=mixer.yaml"], "-c without a file and a command"),
        (
            ["-c", "mixer.yaml", "ragged", "x"],
            "'ragged' takes no configuration file of the Dolma toolkit; those that do: tag, dedupe, mix, ",
        ),
        (["--config", "mixer.yaml", "mxi"], "Did you mean 'mix'?"),
    ],
)
def test_a_verb_without_configuration_files_names_those_that_have_them(words, message, capsys):
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


BASH = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_dolma_dask
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory):
    """Return the output of `dolma-dask completion bash`."""
    done = subprocess.run(
        [sys.executable, "-m", "dolma_dask", "completion", "bash"], capture_output=True, text=True, check=True
    )
    path = tmp_path_factory.mktemp("completion") / "dolma-dask"
    path.write_text(done.stdout)
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["ra"], {"ragged"}),
        ([""], set(first_words())),
        (["cluster", ""], {"script", "check"}),
        (["cluster", "check", "--fo"], {"--folder"}),
        (["mix", "--wh"], {"--where"}),
        (["mix", "--dry"], {"--dry-run"}),
        (["mix", "x", "--on-bad-record", "q"], {"quarantine"}),
        (["tag", "x", "--taggers", "char_length_v"], {"char_length_v1"}),
        (["list", "char_length_v"], {"char_length_v1"}),
        (["convert", "x", "--mapping", "c"], {"c4"}),
        (["run", "--fr"], {"--from"}),
        (["tag", "some_f"], {"some_folder"}),
        (["run", "some_p"], {"some_pipeline.yaml"}),
    ],
)
def test_bash_completes(typed, offered, bash_script, tmp_path):
    (tmp_path / "some_folder").mkdir()
    (tmp_path / "some_pipeline.yaml").write_text("")
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", str(bash_script), "dolma-dask", *typed],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert offered <= set(done.stdout.split())
    assert len(offered) > 1 or done.stdout.split() == list(offered)
    assert done.stderr == ""


@pytest.mark.parametrize("shell, mark", [("zsh", "#compdef dolma-dask"), ("fish", "complete -c dolma-dask")])
def test_other_shells_get_a_script(shell, mark, capsys):
    assert cli.main(["completion", shell]) == 0
    shown = capsys.readouterr().out
    assert mark in shown
    assert "quantiles" in shown
    assert cli.main(["completion", "tcsh"]) == 2


def test_completion_is_installed_where_bash_looks(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cli.main(["--install-completion", "--shell", "bash"]) == 0
    script = tmp_path / ".local/share/bash-completion/completions/dolma-dask"
    assert "_dolma_dask" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


INTERRUPTED_AT = """
import os, signal, sys

class CtrlC:
    def find_spec(self, name, *_):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = ["dolma-dask", "list"]
from dolma_dask.__main__ import entry
entry()
"""


@pytest.mark.parametrize("name", ["cyclopts", "dolma_dask.cli", "dolma_dask.taggers.registry"])
def test_ctrl_c_at_the_start_is_one_line(name):
    script = INTERRUPTED_AT.format(name=name)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1].endswith("interrupted; run the same command again")
    assert len(ended.stderr.splitlines()) == 1


LOST = """
import os, signal, sys, weakref

class Imported:
    pass

callback = "def callback(_):\\n    os.kill(os.getpid(), signal.SIGINT)\\n    return None\\n"
exec(compile(callback, {file!r}, "exec"))

class CtrlC:
    def find_spec(self, name, *_):
        if name == "cyclopts":
            imported = Imported()
            self.watched = weakref.ref(imported, callback)
            del imported

sys.meta_path.insert(0, CtrlC())
sys.argv = ["dolma-dask", "list"]
{slow}
from dolma_dask.__main__ import entry
entry()
"""

SLOW = """
import _thread, dolma_dask.__main__, time
from types import SimpleNamespace

def start(*call):
    dolma_dask.__main__._thread = _thread
    _thread.start_new_thread(*call)
    time.sleep(20 * dolma_dask.__main__._LATER_SECONDS)

dolma_dask.__main__._thread = SimpleNamespace(start_new_thread=start)
"""


@pytest.mark.parametrize("slow", ["", SLOW], ids=["", "slow"])
@pytest.mark.parametrize("file", ["<frozen importlib._bootstrap>", "other.py"])
def test_ctrl_c_is_not_lost_in_callbacks(file, slow):
    """Exceptions in callbacks of weak references are ignored; those that imports leave behind are of their machinery.

    On a slow machine Ctrl-C comes again before the callback has been left.
    """
    script = LOST.replace("{file!r}", repr(file)).replace("{slow}", slow)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1].endswith("interrupted; run the same command again")
    assert len(ended.stderr.splitlines()) == 1


AGAIN = """
import os, signal, sys
from types import SimpleNamespace
import dolma_dask.__main__, dolma_dask.cli

now = 0.0
dolma_dask.__main__.time = SimpleNamespace(monotonic=lambda: now)

def interrupt(later=0.0):
    global now
    now += later * dolma_dask.__main__._SAME_SECONDS
    os.kill(os.getpid(), signal.SIGINT)

class Told:
    def write(self, text):
        interrupt(later=2)
        sys.__stderr__.write(text)

    def flush(self):
        sys.__stderr__.flush()

def main():
    try:
        interrupt()
    finally:
        for _ in range(9):
            interrupt(later=0.6)
        print("stopped")

dolma_dask.cli.main, sys.stderr = main, Told()
dolma_dask.__main__.entry()
"""


IN_TEXT = """
import os, signal
import dolma_dask.__main__, dolma_dask.cli

dolma_dask.cli.main = lambda: exec("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
dolma_dask.__main__.entry()
"""


def test_ctrl_c_in_code_made_of_a_text_ends_with_the_status_of_all_others(tmp_path):
    """Python would end a module that it runs by the signal."""
    (tmp_path / "in_text.py").write_text(IN_TEXT)
    call = [sys.executable, "-m", "in_text"]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    ended = subprocess.run(
        call, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": path}
    )
    assert ended.returncode == 130
    assert ended.stderr == "interrupted; run the same command again\n"


def test_ctrl_c_that_is_held_down_stops_once():
    """Neither what is being stopped nor the end of the command is left by another."""
    ended = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "stopped\n"
    assert ended.returncode == 130
    assert ended.stderr == "interrupted; run the same command again\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("tag v0", "the same command goes on from here"),
        ("-c c.yaml mix", "the same command goes on from here"),
        ("run p.yaml", "the same command goes on from here"),
        ("histogram v0 words", "run the same command again"),
        ("what-if v0", "run the same command again"),
    ],
)
def test_ctrl_c_says_that_a_command_goes_on_only_where_it_does(words, said, monkeypatch, capsys):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_call", stop)
    assert cli.main(words.split()) == 130
    assert capsys.readouterr().err == f"InterruptedStageError: interrupted; {said}\n"


KEEPS_A_FILE = """
class Log:
    def __init__(self):
        self.itself, self.file = self, open({log!r}, "w")

log = Log()

def f(record):
    log.file.write("seen")
    return record
"""


def test_what_a_function_has_written_is_in_its_file_at_the_end(tmp_path):
    """Files that only cycles hold are closed by Python's last search for cycles."""
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "keeps.py").write_text(KEEPS_A_FILE.format(log=f"{tmp_path}/log"))
    words = "convert a.jsonl --to v0 --source s --scheduler synchronous --function keeps.py:f"
    subprocess.run([sys.executable, "-m", "dolma_dask", *words.split()], cwd=tmp_path, check=True)
    assert (tmp_path / "log").read_text() == "seen"


def test_what_a_function_prints_stays_out_of_json(tmp_path, capfd):
    (tmp_path / "a.jsonl").write_text('{"text": "x"}\n')
    (tmp_path / "loud.py").write_text("def f(record):\n    print('printed')\n    return record\n")
    words = [
        "convert",
        f"{tmp_path}/a.jsonl",
        "--to",
        f"{tmp_path}/v0",
        "--function",
        f"{tmp_path}/loud.py:f",
    ]
    assert cli.main([*words, "--source", "s", "--scheduler", "synchronous", "--json"]) == 0
    shown, said = capfd.readouterr()
    assert json.loads(shown)["counts"]["documents_out"] == 1
    assert "printed" in said
