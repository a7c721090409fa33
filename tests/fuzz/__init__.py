"""Hostile lines, read as a run reads them and compared with an independent reader of the page of values."""
