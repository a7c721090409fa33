"""Messages in formats that a schema registry knows: asking it (on the driver), and turning bytes into columns (in
tasks)."""
