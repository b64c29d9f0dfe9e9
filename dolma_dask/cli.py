"""The command line: every verb is the Python function of the same name, its options are that function's arguments.

Commands are imported when they are called, so that ``--help`` costs a tenth of a second. Exit status: 0 all is done, 1 something
failed or was lost, 2 the call is wrong, 130 stopped by the user.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cyclopts import App, CycloptsError

from dolma_dask import __version__
from dolma_dask.errors import DolmaDaskError, StageError

if TYPE_CHECKING:
    from dolma_dask.summary import Summary

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
    app = App(name="dolma-dask", version=__version__, help=_HELP, help_epilogue=_EPILOGUE)
    for name, (target, text) in _COMMANDS.items():
        app.command(target, name=name, help=None if name == called else text)
    return app


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
    except CycloptsError:
        return 2  # cyclopts has said what is wrong
    except StageError as error:
        _show_failures(error, as_json)
        return error.exit_status
    except DolmaDaskError as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return error.exit_status
    except KeyboardInterrupt:
        sys.stderr.write("stopped; run the same command again to go on\n")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _call(words: Sequence[str]) -> Any:
    from dolma_dask.settings import DEFAULT_SCHEDULER

    DEFAULT_SCHEDULER.set("cluster")
    return make_app(words[0] if words else None)(words, result_action="return_value", exit_on_error=False)


def _show(result: Any, as_json: bool) -> int:
    if result is None:
        return 0
    if isinstance(result, str):
        sys.stdout.write(result + "\n")
        return 0
    sys.stdout.write((json.dumps(result.to_json(), indent=2) if as_json else str(result)) + "\n")
    return int(result.exit_status)


def _show_failures(error: StageError, as_json: bool) -> None:
    summary: Summary | Any = error.details.get("summary")
    if summary is not None:
        _show(summary, as_json)
    else:
        sys.stderr.write(f"{error}\n")
    sys.stderr.write("The same command does only what is left, once the causes are mended.\n")


def entry() -> None:
    """Entry point of the console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
