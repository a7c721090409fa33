"""Turns lines and columns into records: plain lines by Arrow, all other lines by Spark's parser, and columns that have types."""
