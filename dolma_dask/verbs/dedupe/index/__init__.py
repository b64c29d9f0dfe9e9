"""An index for datasets to come: its segments, and how new documents meet it, equal ones (`exact`) or similar ones (`fuzzy`)."""
