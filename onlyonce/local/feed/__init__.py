"""Input for the two pipelines that ship: real flights and made-up user events, as JSON lines in an inbox."""
