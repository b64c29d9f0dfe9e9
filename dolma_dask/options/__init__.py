"""Options of commands: what all of them share, and how they are checked."""
