"""Decisions about windows that a backfill computes again, and about rows that a release takes in again."""
