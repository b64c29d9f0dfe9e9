"""Benchmarks of whole jobs and of single kernels: ``python -m benchmarks``, or ``make bench``. Figures are kept in LOG.md."""
