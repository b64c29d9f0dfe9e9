"""Outputs of kept documents: a file per kind of output, with its options and the plan or job that makes it."""
