"""Spark as a run uses it: the session, workers, names and schemas, and failures told in our words."""
