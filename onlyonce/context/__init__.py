"""What a run hands to each of its steps: the session, the pipeline, and its queries under their epochs."""
