"""Tables that a function gets beside its rows: which version there is, and the table as of a version."""
