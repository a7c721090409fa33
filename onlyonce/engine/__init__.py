"""Spark as a run uses it: options, session, workers, state, and the translation of Spark's errors."""
