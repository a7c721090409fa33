"""Runs of a pipeline: once, bounded or long (`stream`, `queries`), and new lives of its queries (`reset`)."""
