"""Pictures of numbers: sums that can be added up over shards, bars and lines made of them, and how these are drawn.

`model` has the content of a panel, `histogram` makes it. Two modules draw, each all kinds of panels: `static` stills by matplotlib (files, and notebooks where no
script runs), `interactive` what reacts by Bokeh (the page of `report`, notebooks, pages of a figure, through `notebook`). `numbers` says the same as columns,
tables and sentences: in a terminal, in JSON, and to those who do not see the picture. `figure` is what users hold.
"""
