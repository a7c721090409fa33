"""What a user declares: a pipeline, its sources, its outputs and their sinks."""
