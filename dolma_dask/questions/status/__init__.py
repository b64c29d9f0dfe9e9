"""State of a dataset, done, left and changed: `question` for people who ask, `overview` for displays of a dataset."""
