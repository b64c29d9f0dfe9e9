"""look: what a folder of raw files holds, and the command that converts it."""
