"""The command line: every verb is the Python function of the same name, its options are that function's arguments.

Commands are imported when they are called, so that ``--help`` costs a tenth of a second. Exit status: 0 all is done, 1 something
failed or was lost, 2 the call is wrong, 130 stopped by the user.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from difflib import get_close_matches
from itertools import takewhile
from typing import Annotated, Any, Literal

from cyclopts import App, CycloptsError
from cyclopts.exceptions import MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from dolma_dask import __version__
from dolma_dask.errors import DolmaDaskError, InterruptedStageError, StageError, UsageError, message_of
from dolma_dask.options.base import Opt
from dolma_dask.options.command import command
from dolma_dask.pipelines.signatures import completed_texts, for_command_line, meant_for, notes, spellings
from dolma_dask.registry import COMMANDS, GROUPS, TOOLKIT, VERBS, name_in

_HELP = """Curate text for language models on Dask: from a laptop to a cluster.

Each verb writes whole files or none, remembers what is finished, and goes on where it was stopped.
Example: dolma-dask tag corpus/wiki/v0 --taggers gopher_v2
"""

_JSON = "Every command takes --json (print the summary as JSON)."
_EPILOGUE = f"""{_JSON} Help on one: dolma-dask COMMAND --help
Commands of the Dolma toolkit, as they are: dolma-dask [-c FILE] {{{",".join(TOOLKIT)}}} --a.b VALUE ... (-c FILE COMMAND --help lists their options)
Options of ModelZoo's create_hdf5_dataset.py: dolma-dask hdf5 MODE --params FILE ... (--help lists those of a mode: LMData, DPO...)
Completion of commands and options by TAB: dolma-dask --install-completion"""


def make_app(called: str | None = None) -> App:
    """Return the application; only the command that is called takes its help from its function, which is then imported."""
    app = _empty_app(called)
    groups = _add_groups(app)
    for number, verb in enumerate(COMMANDS.values()):
        group, _, name = verb.name.rpartition(" ")
        if verb.name == called:
            _add(groups[group], name, _over_all(verb.load()) if verb.over_all else verb.load())
        else:
            groups[group].command(verb.function, name=name, help=verb.help, sort_key=number)
    app.command(for_command_line(completion), name="completion", sort_key=len(COMMANDS))
    return app


def _add_groups(app: App) -> dict[str, App]:
    """Add the commands that only lead to others; return these by name, and the application itself without one."""
    groups = {"": app}
    names = [verb.name for verb in COMMANDS.values()]
    for name, text in GROUPS.items():
        first = next(number for number, known in enumerate(names) if known.startswith(f"{name} "))
        groups[name] = App(name=name, help=text, help_format="plaintext", version_flags=(), sort_key=first)
        app.command(groups[name])
    return groups


def _over_all(verb: Callable[..., Any]) -> Callable[..., Any]:
    from dolma_dask.pipelines.over_all import over_all

    return over_all(verb)


def _add(app: App, name: str, verb: Callable[..., Any], **more_of_it: str) -> None:
    """Add a command whose help stands in its function's docstring; notes come below the options."""
    more = notes(verb)
    epilogue = f"{more}\n\n{_JSON}" if more else _JSON
    app.command(for_command_line(verb), name=name, help_epilogue=epilogue, **more_of_it)


def _empty_app(called: str | None = None) -> App:
    """Return the application without commands; behind a command that is called, --version is that of a dataset."""
    options: dict[str, Any] = {"version_flags": ()} if called else {}
    return App(
        name="dolma-dask",
        version=__version__,
        help=_HELP,
        help_epilogue=_EPILOGUE,
        help_format="plaintext",
        suppress_keyboard_interrupt=False,
        **options,
    )


def _complete_app() -> App:
    """Return the application as shells complete it: with all commands imported, and words that have a few values as choices."""
    app, texts = _empty_app(), completed_texts()
    groups = _add_groups(app)
    for verb in COMMANDS.values():
        group, _, name = verb.name.rpartition(" ")
        groups[group].command(for_command_line(verb.load(), texts), name=name, help=verb.help)
    app.command(for_command_line(completion), name="completion")
    app.register_install_completion_command(help="Make TAB complete commands and options in this shell.")
    return app


@command
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Opt("Which one.")], /) -> str:
    """Print what makes a shell complete commands and options.

    Example: dolma-dask completion bash > ~/.local/share/bash-completion/completions/dolma-dask

    To put it where your shell looks for it: dolma-dask --install-completion
    """
    return _complete_app().generate_completion(shell=shell)


def _from_file(words: Sequence[str]) -> Any:
    """Do what ``-c FILE COMMAND ...`` says, with a configuration of the Dolma toolkit.

    Raises `UsageError`: something is missing, or there is no such command.
    """
    first, *others = words
    if first.startswith("--config="):
        others = [first.partition("=")[2], *others]
    if len(others) < 2:
        raise UsageError(
            f"-c without a file and a command; expected dolma-dask -c FILE COMMAND, where COMMAND is one of {', '.join(TOOLKIT)}."
        )
    file, name, *rest = others
    if name not in TOOLKIT:
        raise UsageError(
            f"{name!r} takes no configuration file of the Dolma toolkit; those that do: {', '.join(TOOLKIT)}."
            + (f" Did you mean {near[0]!r}?" if (near := get_close_matches(name, TOOLKIT, n=1)) else "")
        )
    return _of_toolkit([name, *rest], file)


def _of_toolkit(words: Sequence[str], file: str | None = None) -> Any:
    name, *rest = words
    if {"--help", "-h"} & set(rest):
        from dolma_dask.pipelines.dolma_help import help_of

        return help_of(name)
    from dolma_dask.pipelines.dolma_calls import run

    return run(name, rest, file)


def _is_of_toolkit(words: Sequence[str]) -> bool:
    """Tell whether words call a command of the Dolma toolkit: one that is not here, or by an option that only it has."""
    name, *rest = words
    if name not in TOOLKIT or name not in COMMANDS:
        return name in TOOLKIT
    if name == "stat" and rest[:1] == ["--attributes"] and "/" in "".join(rest[1:2]):
        return True  # paths, where ours takes names behind a dataset
    ours = {*spellings(COMMANDS[name].load()).values()}
    options = {word.partition("=")[0] for word in rest if word.startswith("--")}
    others = {option for option in options if option.replace("--no-", "--", 1) not in ours}
    if not others - {"--help"}:
        return False
    from dolma_dask.pipelines.dolma_options import knows

    return any(knows(name, option) for option in others)


def import_called(words: Sequence[str]) -> None:
    """Import the command that words call; if that fails, `main` says why."""
    name = name_in(words)
    with suppress(DolmaDaskError, ImportError):
        if name:
            COMMANDS[name].load()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    words = [word for word in words if word != "--json"]
    try:
        with _apart_from_json() if as_json else nullcontext():
            result = _call(words)
        return _show(result, as_json)
    except CycloptsError as error:
        return _show_error(UsageError(_wrong_words(error, words)), as_json)
    except KeyboardInterrupt:
        return _show_error(InterruptedStageError(_interrupted(words)), as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (DolmaDaskError, OSError) as error:
        return _show_error(error, as_json)


def _interrupted(words: Sequence[str]) -> str:
    name = name_in(words)
    resumes = name in VERBS or name in ("run", "demo")
    return f"interrupted; {'the same command goes on from here' if resumes else 'run the same command again'}"


@contextmanager
def _apart_from_json() -> Iterator[None]:
    """Send what functions of users print, here and in processes that are started, to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _call(words: Sequence[str]) -> Any:
    if _is_modelzoo(words):
        from dolma_dask.pipelines import hdf5_options, hdf5_script

        if {"--help", "-h"} & set(words):
            return hdf5_script.show_help(words[1])
        return hdf5_options.create_hdf5_dataset(words[1:])
    first = words[0] if words else ""
    if first in ("-c", "--config") or first.startswith("--config="):
        return _from_file(words)
    if first in TOOLKIT and words[1:2] in (["-c"], ["--config"]):
        return _from_file([*words[1:3], first, *words[3:]])
    if words and _is_of_toolkit(words):
        return _of_toolkit(words)
    app = _complete_app() if first == "--install-completion" else make_app(name_in(words))
    how: dict[str, Any] = {"result_action": "return_value", "exit_on_error": False, "print_error": False}
    try:
        return app(words, **how)
    except MissingArgumentError:
        if (completed := _with_root(words)) is None:
            raise
        return app(completed, **how)


def _with_root(words: Sequence[str]) -> list[str] | None:
    """Return a call of a version of a source with the root that the environment names; None if it is none, or there is no such root."""
    from dolma_dask.dataset import ROOT

    name, root = name_in(words), os.environ.get(ROOT)
    if name is None or not root or not any(word.partition("=")[0] == "--version" for word in words):
        return None
    at = list(words).index(name.split()[0]) + len(name.split())
    return [*words[:at], root, *words[at:]]


def _is_modelzoo(words: Sequence[str]) -> bool:
    """Tell whether words are those of create_hdf5_dataset.py behind ``dolma-dask hdf5``: a mode comes first."""
    if len(words) < 2 or words[0] != "hdf5" or words[1] in ("--help", "-h"):
        return False
    from dolma_dask.outputs.hdf5.options import is_mode

    return is_mode(words[1])


def _of_modelzoo(words: Sequence[str]) -> str | None:
    """Say that options of create_hdf5_dataset.py need a mode."""
    if words[:1] != ["hdf5"]:
        return None
    from dolma_dask.pipelines.hdf5_options import without_mode

    return without_mode(words[1:])


_NUMBERS: dict[Any, str] = {
    int: " A whole number is digits alone.",
    float: " A number is written as 0.1 or 1e-3.",
}
"""What is said of a value that is no number, by the type that it should have."""

_ELSEWHERE = {"--fuzzy": "--how fuzzy", "--minhash": "--how fuzzy", "--threshold": "--similarity"}
"""Options of `dedupe` as people know them from other tools."""


_ROOT_MISSING = (
    "DATASET is missing; expected the root in which --source and --version are looked for, as sources/<source>/<version>: . for this folder, or "
    "s3://ai2-llm/pretraining-data, which tools with these options take by themselves. DOLMA_DASK_ROOT in the environment names it once for all commands."
)


def _wrong_words(error: CycloptsError, words: Sequence[str]) -> str:
    """Return what is wrong with the words of a command, and where to look."""
    if said := _of_modelzoo(words):
        return said
    command = " ".join(["dolma-dask", *(error.command_chain or ())])
    argument = error.argument
    if isinstance(error, UnknownOptionError) and error.command_chain == ("dedupe",):
        meant = _ELSEWHERE.get(error.token.keyword or "")
        if meant:
            return f"unknown option {error.token.keyword}; did you mean {meant}? Help: {command} --help"
    if isinstance(error, UnknownOptionError) and (said := _named_argument(error)):
        return f"{said} Help: {command} --help"
    if isinstance(error, MissingArgumentError) and argument is not None and not argument.tokens:
        verb = COMMANDS.get(" ".join(error.command_chain or ()))
        known = spellings(verb.load()).values() if verb else ()
        strange = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
        near = get_close_matches(argument.name, strange, n=1)
        if argument.name == "DATASET" and {"--source", "--version"} <= set(words):
            return f"{_ROOT_MISSING} Help: {command} --help"
        if argument.name in words:
            return f"{argument.name} has no value; expected one behind it. Help: {command} --help"
        found = (
            f"unknown option {near[0]}; did you mean {argument.name}?"
            if near
            else f"{argument.name} is missing; expected it in {command}."
        )
        extra = _unnamed(error, words)
        if not near and extra and _option_of(error, extra, words) == argument.name:
            found = f"{argument.name} is missing; did you mean {argument.name} {shlex.join(extra)}?"
        return f"{found} Help: {command} --help"
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        extra = list(error.unused_tokens)
        if (cut := _cut_rule(extra, words)) is not None:
            return f"{cut}: more than the value of --where; expected the whole rule in quotes: --where 'word_count >= 50'. Help: {command} --help"
        option = _option_of(error, extra, words)
        meant = (
            f"did you mean {option} {shlex.join(extra)}?"
            if option
            else f"expected none; leave {'it' if len(extra) == 1 else 'them'} out."
        )
        return (
            f"{shlex.join(extra)}: no option is named before it in {command}; {meant} Help: {command} --help"
        )
    if isinstance(error, UnknownOptionError):
        return f"{_unknown_option(error)} Help: {command} --help"
    number = _NUMBERS.get(getattr(error, "target_type", None), "")
    return f"{str(error).strip()}{number} Help: {command} --help"


def _unknown_option(error: UnknownOptionError) -> str:
    """Name an unknown option, and the one that was meant if there is a similar one."""
    option = (error.token.keyword or error.token.value).partition("=")[0]
    verb = COMMANDS.get(" ".join(error.command_chain or ()))
    known = [name for name in spellings(verb.load()).values() if name.startswith("--")] if verb else []
    near = get_close_matches(option, known, n=1, cutoff=_SIMILAR)
    return f"Unknown option: {option}." + (f" Did you mean {near[0]}?" if near else "")


_SIMILAR = 0.75
"""Similarity from which an option is proposed in place of another; `--where` and `--share` have 0.71."""


def _named_argument(error: UnknownOptionError) -> str | None:
    """Return what to write in place of an option that is an argument without a name."""
    verb = COMMANDS.get(" ".join(error.command_chain or ()))
    option = (error.token.keyword or error.token.value).partition("=")[0]
    arguments = (
        [name for name in spellings(verb.load()).values() if not name.startswith("--")] if verb else []
    )
    if verb is None or option.removeprefix("--").replace("-", "_").upper() not in arguments:
        return None
    return f"{option} is no option; write its value without a name: dolma-dask {' '.join([verb.name, *arguments])}."


def _unnamed(error: CycloptsError, words: Sequence[str]) -> list[str]:
    """Return the words behind a command that are more than it takes without a name; of a list the last one, if it has several."""
    verb = COMMANDS.get(" ".join(error.command_chain or ()))
    if verb is None:
        return []
    behind = list(takewhile(lambda word: not word.startswith("-"), words[len(error.command_chain or ()) :]))
    taken = [name for name in spellings(verb.load()).values() if not name.startswith("--")]
    return behind[len(taken) :]


def _cut_rule(extra: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the words without a name if they stand behind the first word of a rule, which the shell has cut at its spaces."""
    at = words.index("--where") + 2 if "--where" in words else len(words)
    behind = takewhile(lambda word: not word.startswith("--"), words[at:])
    return shlex.join(extra) if list(behind)[: len(extra)] == list(extra) else None


def _option_of(error: CycloptsError, extra: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the option that words without a name likely belong to."""
    verb = COMMANDS.get(" ".join(error.command_chain or ()))
    return verb and meant_for(verb.load(), extra[0], {word.partition("=")[0] for word in words})


def _show(result: Any, as_json: bool) -> int:
    if isinstance(result, str):
        sys.stdout.write(result + "\n")
    elif as_json and result is not None:
        _write_json({**result.to_json(), "exit_status": result.exit_status})
    elif result is not None:
        sys.stdout.write(f"{result}\n")
    return int(getattr(result, "exit_status", 0))


def _show_error(error: Exception, as_json: bool) -> int:
    """Say what is wrong in one line, or in the summary of a verb that shows its failures; as JSON too, on standard output."""
    status = error.exit_status if isinstance(error, DolmaDaskError) else 1
    message = message_of(error)
    summary: Any = error.details.get("summary") if isinstance(error, DolmaDaskError) else None
    shows_failures = isinstance(error, StageError) and summary is not None
    if not as_json and (shows_failures or getattr(summary, "verb", None) == "run"):
        sys.stdout.write(f"{summary}\n")
    if as_json or not shows_failures:
        sys.stderr.write(f"{type(error).__name__}: {message}\n")
    if isinstance(error, StageError):
        sys.stderr.write("The same command does only what is left, once the causes are mended.\n")
    if as_json:
        shown = None if summary is None else summary.to_json()
        description = {"type": type(error).__name__, "message": message}
        _write_json({"error": description, "summary": shown, "exit_status": status})
    return status


def _write_json(content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(content, indent=2) + "\n")
