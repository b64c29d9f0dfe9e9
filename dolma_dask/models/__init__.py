"""Models that taggers ask: those that come with a package, and those of the user's, each opened once in a process."""
