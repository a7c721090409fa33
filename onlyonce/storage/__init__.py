"""Where bytes lie, and commits of them: the platform's own Delta tables, checkpoints, staged rows, the archive."""
