"""The command line: every verb is the Python function of the same name, its options are that function's arguments.

Commands are imported when they are called, so that ``--help`` costs a tenth of a second. Exit status: 0 all is done, 1 something
failed or was lost, 2 the call is wrong, 130 stopped by the user.
"""

import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from cyclopts import App, CycloptsError
from cyclopts.exceptions import MissingArgumentError

from dolma_dask import __version__
from dolma_dask.errors import DolmaDaskError, InterruptedStageError, StageError, UsageError

_COMMANDS = {
    "convert": ("dolma_dask.stages.convert:convert", "Turn raw files into documents in the Dolma layout."),
    "tag": ("dolma_dask.stages.tag:tag", "Run taggers over every document, in one pass."),
    "list": ("dolma_dask.questions.taggers:show_taggers", "List the taggers, built in and from plug-ins."),
    "mix": ("dolma_dask.stages.mix:mix", "Write a new version with the documents that a rule keeps."),
    "ragged": ("dolma_dask.stages.ragged:ragged", "Tokenize documents into ragged NumPy arrays."),
    "report": ("dolma_dask.stages.report:report", "Write one HTML page that shows what happened."),
    "demo": ("dolma_dask.stages.demo:demo", "Do all of this on text from this Python installation."),
}

_HELP = """Curate text for language models on Dask: from a laptop to a cluster.

Each verb writes whole files or none, remembers what is finished, and goes on where it was stopped.
Example: dolma-dask tag corpus/wiki --taggers gopher_v2
"""

_EPILOGUE = "Every command takes --json (print the summary as JSON). Help on one: dolma-dask COMMAND --help"


def make_app(called: str | None = None) -> App:
    """Return the application; only the command that is called takes its help from its function, which is then imported."""
    app = App(
        name="dolma-dask", version=__version__, help=_HELP, help_epilogue=_EPILOGUE, help_format="plaintext"
    )
    for name, (target, text) in _COMMANDS.items():
        if name == called:
            app.command(_spoken(_load(target)), name=name)
        else:
            app.command(target, name=name, help=text)
    return app


def _load(target: str) -> Callable[..., Any]:
    module, name = target.split(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def _spoken(verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return a verb as the command line takes it: words instead of objects; what may be given by name in Python must be."""

    def command(*words: Any, **options: Any) -> Any:
        return verb(*words, **options)

    hints = {name: _in_words(hint) for name, hint in get_type_hints(verb, include_extras=True).items()}
    signature = inspect.signature(verb)
    parameters = [
        item.replace(
            kind=item.KEYWORD_ONLY if item.kind is item.POSITIONAL_OR_KEYWORD else item.kind,
            annotation=hints[item.name],
        )
        for item in signature.parameters.values()
    ]
    command.__name__, command.__doc__ = verb.__name__, verb.__doc__
    command.__annotations__ = hints
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _in_words(hint: Any) -> Any:
    """Return what is left of a type on the command line: of a list its items' words, of several types the words."""
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        return Annotated[(_in_words(inner), *more)]
    if get_origin(hint) not in (Union, UnionType):
        return Sequence[str] if get_origin(hint) is Sequence else hint
    choices = get_args(hint)
    lists = [choice for choice in choices if get_origin(choice) is Sequence]
    if lists or str in choices:
        none = [choice for choice in choices if choice is type(None)]
        return reduce(or_, none, Sequence[str] if lists else str)
    return hint


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
        return _show(_call(words), as_json)
    except CycloptsError as error:
        return _show_error(UsageError(_wrong_words(error)), as_json)
    except StageError as error:
        return _show_failures(error, as_json)
    except DolmaDaskError as error:
        return _show_error(error, as_json)
    except KeyboardInterrupt:
        return _show_error(InterruptedStageError("stopped; run the same command again to go on"), as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _show_error(error, as_json)


def _call(words: Sequence[str]) -> Any:
    from dolma_dask.settings import DEFAULT_SCHEDULER

    called = next((word for word in words if word in _COMMANDS), None)
    token = DEFAULT_SCHEDULER.set("cluster")
    try:
        return make_app(called)(words, result_action="return_value", exit_on_error=False, print_error=False)
    finally:
        DEFAULT_SCHEDULER.reset(token)


def _wrong_words(error: CycloptsError) -> str:
    """Return what is wrong with the words of a command, and where to look."""
    command = " ".join(["dolma-dask", *(error.command_chain or ())])
    argument = error.argument
    if isinstance(error, MissingArgumentError) and argument is not None and not argument.tokens:
        return f"{argument.name} is missing; expected it in {command}. Help: {command} --help"
    return f"{str(error).strip()} Help: {command} --help"


def _show(result: Any, as_json: bool) -> int:
    if result is None:
        return 0
    if isinstance(result, str):
        sys.stdout.write(result + "\n")
        return 0
    if as_json:
        _write_json({**result.to_json(), "exit_status": result.exit_status})
    else:
        sys.stdout.write(f"{result}\n")
    return int(result.exit_status)


def _show_error(error: Exception, as_json: bool) -> int:
    """Say what is wrong in one line; as JSON too, on standard output."""
    status = error.exit_status if isinstance(error, DolmaDaskError) else 1
    message = _os_message(error) if isinstance(error, OSError) else str(error)
    sys.stderr.write(f"{type(error).__name__}: {message}\n")
    if as_json:
        summary = error.details.get("summary") if isinstance(error, DolmaDaskError) else None
        shown: Any = None if summary is None else summary.to_json()  # type: ignore[attr-defined]
        found = {"type": type(error).__name__, "message": message}
        _write_json({"error": found, "summary": shown, "exit_status": status})
    return status


def _os_message(error: OSError) -> str:
    """Return one line: what the system refused, where, and what to do."""
    places = " -> ".join(str(place) for place in (error.filename, error.filename2) if place is not None)
    what = error.strerror or " ".join(str(error).split()) or "the system gave no reason"
    look_at = (
        "the path, its permissions and the space that is left" if places else "the disk and the connection"
    )
    return f"{f'{places}: ' if places else ''}{what}. Look at {look_at}, then run the same command again: it does only what is left."


def _show_failures(error: StageError, as_json: bool) -> int:
    summary: Any = error.details.get("summary")
    if as_json or summary is None:
        _show_error(error, as_json)
    else:
        _show(summary, as_json)
    sys.stderr.write("The same command does only what is left, once the causes are mended.\n")
    return error.exit_status


def _write_json(content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def entry() -> None:
    """Entry point of the console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
