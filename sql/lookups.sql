-- near --
-- What a batch of an output, and the one before it, have fixed of the output's lookups.
SELECT batch_id, state, declaration_hash, lookups FROM onlyonce_private.batches
WHERE lineage = :lineage AND batch_id BETWEEN CAST(:batch_id AS bigint) - 1 AND CAST(:batch_id AS bigint)

-- others --
-- The last batch before one that saw other versions of its lookups.
SELECT b.batch_id FROM onlyonce_private.batches b
JOIN onlyonce_private.batches this ON (this.lineage, this.batch_id) = (b.lineage, :batch_id)
WHERE b.lineage = :lineage AND b.batch_id < :batch_id AND b.lookups <> this.lookups ORDER BY b.batch_id DESC LIMIT 1

-- of_windows --
-- What the windows of an output that start in an interval saw of its lookups, when they were last written. A window whose result is gone, or that had
-- none, says nothing.
SELECT DISTINCT ON (window_start, window_end) window_start, window_end, lookups FROM onlyonce_private.panes
WHERE instance = :instance AND output = :output AND window_start >= :window_from AND window_start < :window_to AND lookups IS NOT NULL
ORDER BY window_start, window_end, generation DESC
