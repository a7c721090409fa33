"""Outputs with state of their own: the user's processor on Spark's transformWithStateInPandas."""
