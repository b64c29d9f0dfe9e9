"""Entry for processes that have this folder in PYTHONPATH."""

from dolma_dask.testing.disturbance import disturb

disturb()
