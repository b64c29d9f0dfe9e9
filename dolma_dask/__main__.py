"""``python -m dolma_dask``, and what the console script calls: imports little before Ctrl-C has its one line."""

import signal
import sys


def entry() -> None:
    """Run the command of this process, and exit with its status."""
    try:
        from dolma_dask.cli import main

        status = main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command goes on from here\n")
        status = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nothing is left to stop
    sys.exit(status)


if __name__ == "__main__":
    entry()
