-- Whether a cut of an inbox is committed (`onlyonce collect`, where input is archived): asked of the files that are there, not of all that ever came.
CREATE INDEX batches_by_cut ON onlyonce_private.batches (lineage, ((source_to->>'batch_no')::bigint), batch_id)
    WHERE state = 'committed' AND source_to ? 'batch_no';
