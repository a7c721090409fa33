"""Other engines at the same work, each a script that an environment of its own runs (`make bench-peers`)."""
