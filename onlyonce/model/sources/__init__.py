"""Decisions about what is read: offsets, landed messages, plain lines."""
