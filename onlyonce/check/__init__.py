"""Finds mistakes before a run reads anything: it checks types, functions, and whether the functions' results fit the
sinks."""
