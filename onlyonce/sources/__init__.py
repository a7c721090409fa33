"""Find new input and read it.

`discovery` finds what is new, `manifest` stores it in a manifest, and a batch reads what the manifest names.
`source_files` and `source_kafka` are the kinds of source. `values` turns their lines and columns into records. `pubsub`
brings messages into an inbox.
"""
