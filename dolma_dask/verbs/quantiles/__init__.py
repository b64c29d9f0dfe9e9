"""Quantiles of signals by group, and thresholds. Begin with `verb`; `job` holds the passes and writes the levels.

`values` keeps the values of all shards in `files`, `select` finds the requested ranks in them (`order_statistics`).
"""
