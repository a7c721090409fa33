"""What a source gives as records: plain lines by Arrow, all others by Spark's parser, columns that come with types."""
