"""Other tools for the same job, each a script that runs in an environment that has the tool: ``python SCRIPT DOCUMENTS OUTPUT``.

Not imported by anything here. Each reads all ``*.jsonl.gz`` below DOCUMENTS and writes the ids of duplicates, one a line, to OUTPUT.
"""
