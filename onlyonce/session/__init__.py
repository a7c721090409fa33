"""Spark as a run uses it: the session, workers, names, schemas, and the translation of Spark's errors."""
