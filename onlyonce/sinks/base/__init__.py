"""What the sinks share: content hashes, the values that a target can hold, witnesses and pinned units."""
