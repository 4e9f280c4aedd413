"""Looking without touching: dumps."""
