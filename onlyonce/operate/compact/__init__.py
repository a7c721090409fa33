"""Old commits of `events` and the registries become few large files, by what nobody reads one by one any more."""
