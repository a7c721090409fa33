"""Turns lines and columns into records: plain lines by Arrow, all other lines by the table's reader, and columns that
have types."""
