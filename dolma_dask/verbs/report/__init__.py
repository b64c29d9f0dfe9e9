"""The HTML page. Begin with `verb`; `survey` gathers what is known, `page` renders it.

`view` reads attributes, `bins` and `histogram` count them, `lineage`, `origin` and `history` follow a dataset back, `plots` and `tables` show it, `record` says whether the page is still right.
"""
