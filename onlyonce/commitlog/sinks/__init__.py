"""What the log knows of what sinks hold: files, rows to be sent, and whose each target is."""
