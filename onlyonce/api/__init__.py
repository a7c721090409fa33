"""The declarations of a user: a pipeline, its sources, its outputs and their sinks."""
