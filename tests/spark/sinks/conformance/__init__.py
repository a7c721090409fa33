"""The conformance suite of values: every sink over the same cases.

A sink is one file, and one row of `test_conformance.SINKS`.
"""
