"""The documents that a rule keeps, with what is changed in them: planned from options, read in lockstep with their attributes."""
