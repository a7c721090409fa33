"""Sharded file sinks: their formats and writer (`sink_files`), their stores (`file_stores`), and their clean-up.

`sink_files` decides the names of a pane's files, `finalize` gives them, and `sweep` removes temporary files that no
attempt needs.
"""
