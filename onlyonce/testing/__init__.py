"""For users' own tests: the crash test of a pipeline, and the conformance suite of a sink or source."""
