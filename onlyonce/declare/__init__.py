"""What a user declares: a pipeline, its source, its outputs and their sinks.

Pure but for `loading`, which imports the user's files.
"""
