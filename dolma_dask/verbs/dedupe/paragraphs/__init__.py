"""Duplicates among paragraphs, exact or by n-grams of their words; begin with `job`."""
