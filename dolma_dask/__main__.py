"""``python -m dolma_dask``."""

from dolma_dask.cli import entry

if __name__ == "__main__":
    entry()
