"""What the sinks have in common: content hashes, the values that a target holds, witnesses and pinned units."""
