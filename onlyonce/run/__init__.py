"""Runs of a pipeline: once, bounded or long (`stream`, `queries`), and new incarnations of its queries (`reset`)."""
