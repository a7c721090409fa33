"""Code that the sinks share: content hashes, the values that a target can hold, reference units and pinned units."""
