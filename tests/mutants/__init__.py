"""Deliberately broken builds, and the tests that must notice. README.md has the table."""
