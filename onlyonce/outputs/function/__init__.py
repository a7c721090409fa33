"""The user's function: how it is called, what it sees beside the records, which it rejects, and which one it fails
with."""
