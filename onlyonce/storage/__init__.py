"""Where data is stored, and how it is committed: Delta tables and checkpoints."""
