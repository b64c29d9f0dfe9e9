"""Takedown of documents below a root. Begin with `verb`; `listing` says what a root holds, `stages` does the work on a file, `records` renews journals, `summary` is the receipt."""
