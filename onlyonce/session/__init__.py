"""Spark as a run uses it: the session, a query and its epoch, workers, and failures told in our words."""
