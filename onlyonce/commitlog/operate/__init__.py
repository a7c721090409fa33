"""What the log knows of the work on itself and beside the stream: what is compacted, removed, cut, erased, dropped, and
what was told of it."""
