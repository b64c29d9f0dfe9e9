"""One file per question: they read and answer, and have no journal."""
