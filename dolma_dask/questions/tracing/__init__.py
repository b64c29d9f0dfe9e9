"""Questions about single documents: `trace`, `find` and `explain`."""
