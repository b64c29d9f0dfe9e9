"""What is done, left and changed in a dataset: `question` for people who ask, `overview` for displays of a dataset."""
