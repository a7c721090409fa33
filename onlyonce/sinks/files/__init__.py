"""Sharded file sinks: their formats and writer (`sink_files`), their stores (`file_stores`), and their clean-up.

`finalize` gives files their final names, and `sweep` removes temporary files that no attempt needs.
"""
