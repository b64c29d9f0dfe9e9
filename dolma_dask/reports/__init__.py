"""Reports for people: one web page and its JSON twin, drawn from plain records."""
