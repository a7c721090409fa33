"""What the log knows of the sinks: their files, rows that wait to be sent, and which output has which target."""
