"""What a message proposes to type is typed here, and does what was meant."""

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import dolma_dask
from dolma_dask import cli
from dolma_dask.errors import ExpressionError
from dolma_dask.pipelines.signatures import spellings
from dolma_dask.registry import COMMANDS
from dolma_dask.rules.where import parse, resolve

COLUMNS = {
    "exact": pa.array([None, 1.0, None]),
    "ex-2": pa.array([1.0, None, 1.0]),
    "gopher__word_count": pa.array([3.0, 0.0, 9.0]),
    "a-b__length": pa.array([1, 2, 3]),
    "c__length": pa.array([1, 2, 3]),
    "source": pa.array(["cc", "web", "cc"]),
    "lang": pa.array(["en", None, "de"]),
    "metadata.lang": pa.array(["en", None, "de"]),
    "metadata.my-lang": pa.array(["en", None, "de"]),
}


def whole(typed: str, said: str) -> str:
    """Return the expression behind the last "write"."""
    code = re.findall(r'write (?:`([^`]*)`|"([^"]*)")', said)[-1]
    return "".join(code)


def inside(pattern: str, found: str):
    """Return what puts the `found` part of a message in the place of `pattern`."""
    return lambda typed, said: re.sub(pattern, lambda _: re.search(found, said)[1], typed)


def letters(typed: str, said: str) -> str:
    """Return it with the signs and words that the message lists."""
    assert "and, or, not" in said
    words = {"&": " and ", "|": " or ", "~": " not ", "&&": " and ", "||": " or ", "!": " not "}
    shown = re.sub(r"&&?|\|\|?|~|!", lambda sign: words[sign[0]], typed)
    return re.sub(r"\b(AND|OR|NOT|IS|IN)\b", lambda word: word[0].lower(), shown)


@pytest.mark.parametrize(
    ("typed", "adopt", "kept"),
    [
        ("not exact", whole, [0, 2]),
        ("exact", whole, [1]),
        ("not (exact or `ex-2` > 0)", inside("exact", "write `(.*?)`"), []),
        ("source == 'cc' and not exact", inside("not exact", "write `(.*?)`"), [0, 2]),
        ("not `ex-2`", whole, [1]),
        ("not word_count", whole, []),  # all have one
        ("word_count", inside("^.+$", "such as `(.*?)`"), [0, 2]),
        ("lang", whole, [0, 2]),
        ("not lang", whole, [1]),
        ("exact == None", whole, [0, 2]),
        ("None != exact", whole, [1]),
        ("exact is null", whole, [0, 2]),
        ("exact is not nil", whole, [1]),
        ("word_count is 3", whole, [0]),
        ("word_count is not 3", whole, [1, 2]),
        ("(word_count > 1) & (exact is None)", letters, [0, 2]),
        ("word_count > 1 & exact is None", letters, [0, 2]),
        ("word_count > 4 || exact is not None", letters, [1, 2]),
        ("~(word_count > 4)", letters, [0, 1]),
        ("!(word_count > 4)", letters, [0, 1]),
        ("NOT word_count > 4", letters, [0, 1]),
        ("exact IS None AND source == 'cc'", letters, [0, 2]),
        ("source = 'cc'", inside("(?<= )=", "written (==)"), [0, 2]),
        ("source <> 'cc'", inside("<>", "written (!=)"), [1]),
        ("source in 'cc'", inside("'cc'", r"such as (\(.*?\))"), [0, 2]),
        ("source == cc", inside("cc", "a string, write ('cc')"), [0, 2]),
        ("metadata['lang'] == 'en'", inside(r"metadata\['lang'\]", "written `(.*?)`"), [0]),
        ("metadata['my-lang'] == 'en'", inside(r"metadata\[.*\]", 'written "(.*?)"'), [0]),
        ("ex_2 > 0", inside("ex_2", "near it are: (`.*?`)"), [0, 2]),
        ("length > 1", inside("length", "columns: (`.*?`), "), [1, 2]),
        ("length > 1", inside("length", "columns: .*, ([^ ]*);"), [1, 2]),
        ("word_cuont > 1", inside("word_cuont", r"near it are: (\w+)"), [0, 2]),
    ],
)
def test_the_rule_that_a_message_proposes(typed, adopt, kept) -> None:
    with pytest.raises(ExpressionError) as refused:
        rows(typed)
    assert rows(adopt(typed, str(refused.value))) == kept, str(refused.value)


def rows(expression: str) -> list[int]:
    """Return the numbers of the rows that a rule keeps."""
    mask = resolve(parse(expression), COLUMNS).mask(COLUMNS)
    return [number for number, is_kept in enumerate(mask.to_pylist()) if is_kept]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Six documents in two shards, a copy among them, with three attribute sets."""
    root = tmp_path_factory.mktemp("a corpus")
    (root / "documents").mkdir()
    for name, ids in {"a": "012", "b [1]": "345"}.items():
        lines = [
            {"id": i, "source": "s", "text": f"text {int(i) % 5}", "metadata": {"my-lang": "en", "n": int(i)}}
            for i in ids
        ]
        (root / f"documents/{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for words in ("dedupe @ --name ex-1", "dedupe @ --name ids --by id", "tag @ --taggers char_length_v1"):
        assert call(words, str(root)) == 0
    return str(root)


def call(line: str, root: str) -> int:
    """Run a line of a shell, with the root of the dataset in the place of @."""
    return cli.main([*(word.replace("@", root) for word in shlex.split(line)), "--scheduler", "synchronous"])


@pytest.mark.parametrize(
    ("typed", "proposal", "meant"),
    [
        ("tag @ --tagger char_length_v1", "did you mean (--taggers)", "tag @ {} char_length_v1"),
        ("tag @ --taggers char_length_v1,gopher_v2", r"by spaces: (.*?)\.", "tag @ --taggers {} --dry-run"),
        ("dedupe @ --fuzzy", "did you mean (.*?)\\?", "dedupe @ {} --dry-run"),
        ("quantiles @ --signals length --tails lower", r"(--level \w+)", "quantiles @ --signals length {}"),
        ("quantiles @ --signals length --by my-lang", "write (.*)", "quantiles @ --name k --by {}"),
        (
            "quantiles @ --signals length --by metadata.my_lang",
            "are: (.*?)[, ]",
            "quantiles @ --name m --by {}",
        ),
        ('mix @ --to @-1 --where "`my-lang` is None"', "write (.*)", "mix @ --to @-1 --where '{} is None'"),
        ("sign @ @-2 --duplicates-only", "(--help)", "sign {}"),
        (
            "tag @/documents/a --taggers char_length_v1",
            "the dataset (.*?): give that",
            'tag "{}" --taggers char_length_v1 --only a',
        ),
        (
            "tag '@/documents/*' --taggers char_length_v1",
            "the dataset (.*?): give that",
            'tag "{}" --taggers char_length_v1',
        ),
        (
            "convert @ --to @-4 --source s",
            r"their folder: (.*?)\.\n",
            'convert "{}" --to @-4 --source s',
        ),
        ("histogram @ lenght", "are: (.*?);", "histogram @ {}"),
        ('mix @ --to @-3 --where "`ex-1` is None and ids is None"', "(dedupe .*)", "{}"),
    ],
)
def test_the_command_that_a_message_proposes(typed, proposal, meant, corpus, capfd) -> None:
    call(typed, corpus)
    said = "".join(capfd.readouterr())
    found = re.search(proposal, said)
    assert found, said
    assert call(meant.format(found[1]).replace("dedupe ...", "dedupe @"), corpus) == 0, said


def messages() -> list[tuple[str, str]]:
    """Return the strings of the package that name a command of it, with their places."""
    found = []
    for path in Path(dolma_dask.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if "dolma-dask " in text:
            nodes = [
                node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant | ast.JoinedStr)
            ]
            found += [(f"{path}:{node.lineno}", spelled(node)) for node in nodes]
    return found


def spelled(node: ast.Constant | ast.JoinedStr) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)


def test_commands_in_messages_have_the_options_that_stand_behind_them() -> None:
    options = {name: {*spellings(verb.load()).values(), "--help"} for name, verb in COMMANDS.items()}
    wrong = []
    for place, text in messages():
        for verb, words in re.findall(
            r"dolma-dask ((?:cluster )?[a-z][\w-]*)([^.;\n]*(?:\.\.\.[^.;\n]*)?)", text
        ):
            given = re.findall(r"(?<![\w-])--[a-z][\w-]*", words)
            wrong += [(place, verb, name) for name in given if verb in options and name not in options[verb]]
            if verb in options and words.startswith(" --") and "--help" not in given:
                wrong.append((place, verb, "begins with an option, not with what it works on"))
    assert [(verb, said) for _, verb, said in wrong if (verb, said) not in IN_PASSING] == [], wrong


IN_PASSING = {
    ("hdf5", "--params"),
    ("hdf5", "--input_dir"),
    ("hdf5", "--output_dir"),
    ("ragged", "--tokens"),
    ("run", "--set"),
}
"""Options of `create_hdf5_dataset.py`, and those of the command that a message is about."""


@pytest.mark.parametrize(
    ("rule", "made"),
    [("length > 0", "tag @ --taggers char_length_v1"), ("`ex-1` is None", "dedupe @")],
)
def test_the_command_that_makes_a_stale_set_again(rule, made, corpus, tmp_path, capfd) -> None:
    root = str(shutil.copytree(corpus, tmp_path / "its copy"))
    shard = Path(root, "documents/b [1].jsonl")
    shard.write_text(shard.read_text().replace("text 4", "other"))
    mix = f"mix @ --to @-new --where '{rule}'"
    assert call(mix, root) != 0
    again = re.search(r"Re-run: dolma-dask \w+ \.\.\.(.*)", "".join(capfd.readouterr()))
    assert call(f"{made} {again[1].split(' (attribute set')[0].strip()}", root) == 0
    assert call(mix, root) == 0
