"""A run: drain what is there (`drain`), go on without end (`long_run`, `continuous`), or begin a new life (`lineage`)."""
