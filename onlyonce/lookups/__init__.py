"""Lookup tables that an output's function gets with its rows: their versions, and each table as of a version."""
