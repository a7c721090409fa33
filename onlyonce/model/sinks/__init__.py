"""Decisions about files of sinks and rows that are sent."""
