"""Windows computed anew: those of a backfill, of late records, of a release."""
