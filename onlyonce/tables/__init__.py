"""Where data is stored, and how it is committed: object stores, Delta tables and checkpoints."""
