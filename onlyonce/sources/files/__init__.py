"""Files as a source: listing an inbox, files that grow, reading lines by ranges of bytes, typed files (Parquet,
Avro)."""
