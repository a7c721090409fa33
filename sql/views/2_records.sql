-- What became of each record.

CREATE OR REPLACE VIEW onlyonce.conservation AS
SELECT p.pipeline, l.instance, l.query, b.incarnation, b.batch_id AS batch,
       b.read AS records_in, b.kept, b.invalid, b.expired, b.duplicate, NULL::bigint AS in_time, NULL::bigint AS late,
       NULL::bigint AS rejected,
       b.state = 'committed' AND b.read = b.kept + b.invalid + b.expired + b.duplicate
           AND (b.units_removed IS NOT NULL OR b.mode <> 'exactly_once' OR b.batch_id <= coalesce(s.upto, -1)
                OR (b.kept, b.invalid, b.expired, b.duplicate) = (u.kept, u.invalid, u.expired, u.duplicate)) AS conserved
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.sums s USING (incarnation)
LEFT JOIN LATERAL (
    SELECT coalesce(sum(x.kept), 0)::bigint AS kept, coalesce(sum(x.invalid), 0)::bigint AS invalid,
           coalesce(sum(x.expired), 0)::bigint AS expired, coalesce(sum(x.duplicate), 0)::bigint AS duplicate
    FROM onlyonce_private.units x
    WHERE (x.incarnation, x.batch_id) = (b.incarnation, b.batch_id) AND b.batch_id > coalesce(s.upto, -1)) u ON true
WHERE l.query = 'receive'
UNION ALL
SELECT p.pipeline, l.instance, l.query, b.incarnation, b.batch_id, NULL, NULL, NULL, NULL, NULL, b.in_time, b.late, b.rejected,
       b.state = 'committed' AND (b.batch_id <= coalesce(s.upto, -1)
                                  OR (b.in_time, b.late, coalesce(b.rejected, 0)) = (w.in_time, w.late, w.rejected))
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.sums s USING (incarnation)
LEFT JOIN LATERAL (
    SELECT coalesce(sum(x.in_time), 0)::bigint AS in_time, coalesce(sum(x.late), 0)::bigint AS late,
           coalesce(sum(x.rejected), 0)::bigint AS rejected
    FROM onlyonce_private.window_counts x
    WHERE (x.incarnation, x.batch_id) = (b.incarnation, b.batch_id) AND b.batch_id > coalesce(s.upto, -1)) w ON true
WHERE l.query <> 'receive';
COMMENT ON VIEW onlyonce.conservation IS
    'Every record has one fate: receive, records_in = kept + invalid + expired + duplicate; an output, what receive kept = in time + late + rejected.';
COMMENT ON COLUMN onlyonce.conservation.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.conservation.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.conservation.query IS 'receive, or the output';
COMMENT ON COLUMN onlyonce.conservation.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.conservation.batch IS 'the batch id';
COMMENT ON COLUMN onlyonce.conservation.records_in IS 'receive: records in the input';
COMMENT ON COLUMN onlyonce.conservation.kept IS 'receive: kept';
COMMENT ON COLUMN onlyonce.conservation.invalid IS 'receive: invalid';
COMMENT ON COLUMN onlyonce.conservation.expired IS 'receive: expired';
COMMENT ON COLUMN onlyonce.conservation.duplicate IS 'receive: duplicate';
COMMENT ON COLUMN onlyonce.conservation.in_time IS 'output: (record, window) pairs in time';
COMMENT ON COLUMN onlyonce.conservation.late IS 'output: pairs that were late';
COMMENT ON COLUMN onlyonce.conservation.rejected IS 'output: pairs that its function rejected; NULL: it has none (reject)';
COMMENT ON COLUMN onlyonce.conservation.conserved IS 'whether the counts add up; false while a batch is begun and not committed';

CREATE OR REPLACE VIEW onlyonce.totals AS
SELECT p.pipeline, l.instance, l.query, l.incarnation, l.ordinal, coalesce(s.batches, 0) + since.batches AS batches,
       (SELECT count(*) FROM onlyonce_private.batches b WHERE b.incarnation = l.incarnation AND b.state = 'begun') AS begun,
       coalesce(s.read + since.read, s.read, since.read) AS records_in, coalesce(s.kept + since.kept, s.kept, since.kept) AS kept,
       coalesce(s.invalid + since.invalid, s.invalid, since.invalid) AS invalid,
       coalesce(s.expired + since.expired, s.expired, since.expired) AS expired,
       coalesce(s.duplicate + since.duplicate, s.duplicate, since.duplicate) AS duplicate,
       coalesce(s.in_time + since.in_time, s.in_time, since.in_time) AS in_time, coalesce(s.late + since.late, s.late, since.late) AS late,
       coalesce(s.rejected + since.rejected, s.rejected, since.rejected) AS rejected,
       coalesce(s.unknown_fields + since.unknown_fields, s.unknown_fields, since.unknown_fields) AS unknown_fields,
       coalesce(s.written_again + since.written_again, s.written_again, since.written_again) AS written_again,
       (SELECT count(DISTINCT hash) FROM unnest(s.declarations || since.declarations) hash) AS declarations,
       (SELECT coalesce(bool_and(coalesce(c.conserved, false)), true) FROM onlyonce.conservation c
        WHERE c.incarnation = l.incarnation AND c.batch > coalesce(s.upto, -1) AND c.batch <= last.batch_id) AS conserved,
       greatest((SELECT b.max_event_time_after FROM onlyonce_private.batches b
                 WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version IS NOT NULL
                 ORDER BY b.delta_version DESC LIMIT 1),
                (SELECT c.max_event_time FROM onlyonce_private.watermark_markers c
                 WHERE c.incarnation = l.incarnation AND c.state = 'committed' ORDER BY c.marker_no DESC LIMIT 1)) AS max_event_time,
       last.read_upto, last.batch_id AS last_batch, last.committed_at AS last_committed_at, coalesce(s.upto, -1) AS folded_upto
FROM onlyonce_private.incarnations l JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.sums s USING (incarnation)
LEFT JOIN LATERAL (
    SELECT b.batch_id, b.committed_at,
           (b.source_to->>'reservoirVersion')::bigint - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END AS read_upto
    FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' ORDER BY b.batch_id DESC LIMIT 1) last ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS batches, sum(b.read)::bigint AS read, sum(b.kept)::bigint AS kept, sum(b.invalid)::bigint AS invalid,
           sum(b.expired)::bigint AS expired, sum(b.duplicate)::bigint AS duplicate, sum(b.in_time)::bigint AS in_time,
           sum(b.late)::bigint AS late, sum(b.rejected)::bigint AS rejected, sum(b.unknown_fields)::bigint AS unknown_fields, sum(b.written_again)::bigint AS written_again,
           array_agg(DISTINCT b.declaration_hash) AS declarations
    FROM onlyonce_private.batches b
    -- With an upper bound the planner sees a small range, and uses an index.
    WHERE b.incarnation = l.incarnation AND b.batch_id > coalesce(s.upto, -1) AND b.batch_id <= last.batch_id AND b.state = 'committed') since
WHERE l.kind = 'stream';
COMMENT ON VIEW onlyonce.totals IS 'What the committed batches of each incarnation of each query came to, quick for a log of any length: a gc run adds batches older than a day to sums.';
COMMENT ON COLUMN onlyonce.totals.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.totals.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.totals.query IS 'receive, or the output';
COMMENT ON COLUMN onlyonce.totals.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.totals.ordinal IS 'counts the checkpoints of the query';
COMMENT ON COLUMN onlyonce.totals.batches IS 'how many batches are committed';
COMMENT ON COLUMN onlyonce.totals.begun IS 'how many have begun and are not';
COMMENT ON COLUMN onlyonce.totals.records_in IS 'receive: records in the input';
COMMENT ON COLUMN onlyonce.totals.kept IS 'receive: kept';
COMMENT ON COLUMN onlyonce.totals.invalid IS 'receive: invalid';
COMMENT ON COLUMN onlyonce.totals.expired IS 'receive: expired';
COMMENT ON COLUMN onlyonce.totals.duplicate IS 'receive: duplicate';
COMMENT ON COLUMN onlyonce.totals.in_time IS 'output: (record, window) pairs in time';
COMMENT ON COLUMN onlyonce.totals.late IS 'output: pairs that were late';
COMMENT ON COLUMN onlyonce.totals.rejected IS 'output: pairs that its function rejected; NULL: it has none (reject)';
COMMENT ON COLUMN onlyonce.totals.unknown_fields IS 'receive: records with fields that are not declared';
COMMENT ON COLUMN onlyonce.totals.written_again IS 'output, at least once: rows that were perhaps written twice';
COMMENT ON COLUMN onlyonce.totals.declarations IS 'under how many declarations it has run';
COMMENT ON COLUMN onlyonce.totals.conserved IS 'whether the records of each batch add up: the batches up to folded_upto did when they were added to the sums';
COMMENT ON COLUMN onlyonce.totals.max_event_time IS 'receive: the largest event time that was kept';
COMMENT ON COLUMN onlyonce.totals.read_upto IS 'output: the last version of events that it has read';
COMMENT ON COLUMN onlyonce.totals.last_batch IS 'the highest committed batch id';
COMMENT ON COLUMN onlyonce.totals.last_committed_at IS 'when that was';
COMMENT ON COLUMN onlyonce.totals.folded_upto IS 'the last batch that is added to the sums; -1: none';

CREATE OR REPLACE VIEW onlyonce.rejected AS
SELECT p.pipeline, r.instance, r.output, r.reason, r.window_start, r.window_end, r.event_time,
       lpad(to_hex(r.oo_high), 16, '0') || lpad(to_hex(r.oo_low), 16, '0') AS record_id, r.received_as, r.received_in, r.incarnation, r.batch_id AS batch,
       r.rows, 'data/' || r.instance || '/events' AS location, r.oo_high, r.oo_low
FROM onlyonce_private.rejected r JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.rejected IS
    'Records that the function of an output rejected (reject), once for each window: what its batches have met, of recomputed windows what the last backfill met. `onlyonce rejected` shows the values.';
COMMENT ON COLUMN onlyonce.rejected.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.rejected.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.rejected.output IS 'the output whose function rejected it';
COMMENT ON COLUMN onlyonce.rejected.reason IS 'what the function said';
COMMENT ON COLUMN onlyonce.rejected.window_start IS 'the window; of sessions the one that the record alone would have; NULL without windows';
COMMENT ON COLUMN onlyonce.rejected.window_end IS 'its end';
COMMENT ON COLUMN onlyonce.rejected.event_time IS 'of the record';
COMMENT ON COLUMN onlyonce.rejected.record_id IS 'its id in hexadecimal: onlyonce trace PIPELINE RECORD_ID';
COMMENT ON COLUMN onlyonce.rejected.received_as IS 'the incarnation of receive that kept the record';
COMMENT ON COLUMN onlyonce.rejected.received_in IS 'and its batch there';
COMMENT ON COLUMN onlyonce.rejected.incarnation IS 'the incarnation of the output or backfill that rejected it';
COMMENT ON COLUMN onlyonce.rejected.batch IS 'its batch';
COMMENT ON COLUMN onlyonce.rejected.rows IS 'how often the record is there: more than once only in at_least_once mode';
COMMENT ON COLUMN onlyonce.rejected.location IS 'the Delta table with the values, under the platform''s home';
COMMENT ON COLUMN onlyonce.rejected.oo_high IS 'the first half of the record''s id, as stored in events';
COMMENT ON COLUMN onlyonce.rejected.oo_low IS 'the second half';

CREATE OR REPLACE VIEW onlyonce.reasons AS
SELECT p.pipeline, r.instance, r.output, r.reason, sum(r.rows)::bigint AS rejected, min(r.event_time) AS first_event_time, max(r.event_time) AS last_event_time
FROM onlyonce_private.rejected r JOIN onlyonce_private.pipelines p USING (instance)
GROUP BY p.pipeline, r.instance, r.output, r.reason;
COMMENT ON VIEW onlyonce.reasons IS 'How many (record, window) pairs each output has rejected, by reason. It reads each of them: give it the pipeline, and the output.';
COMMENT ON COLUMN onlyonce.reasons.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.reasons.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.reasons.output IS 'the output whose function rejected them';
COMMENT ON COLUMN onlyonce.reasons.reason IS 'what the function said';
COMMENT ON COLUMN onlyonce.reasons.rejected IS 'how many pairs';
COMMENT ON COLUMN onlyonce.reasons.first_event_time IS 'of the oldest record';
COMMENT ON COLUMN onlyonce.reasons.last_event_time IS 'of the newest';

CREATE OR REPLACE VIEW onlyonce.invalid AS
SELECT pipeline, instance, incarnation, batch, invalid, facts, run_id, committed_at,
       'data/' || instance || '/events' AS location
FROM onlyonce.batches WHERE query = 'receive' AND invalid > 0;
COMMENT ON VIEW onlyonce.invalid IS 'Records without values, by batch. `onlyonce invalid` shows the rows with reason and raw content.';
COMMENT ON COLUMN onlyonce.invalid.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.invalid.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.invalid.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.invalid.batch IS 'the receive batch';
COMMENT ON COLUMN onlyonce.invalid.invalid IS 'how many';
COMMENT ON COLUMN onlyonce.invalid.facts IS 'files that could not be read, with the reason';
COMMENT ON COLUMN onlyonce.invalid.run_id IS 'the run';
COMMENT ON COLUMN onlyonce.invalid.committed_at IS 'when the batch was committed';
COMMENT ON COLUMN onlyonce.invalid.location IS 'the Delta table with the rows, under the platform''s home';

CREATE OR REPLACE VIEW onlyonce.expired AS
SELECT pipeline, instance, incarnation, batch, expired, run_id, committed_at,
       'data/' || instance || '/events' AS location
FROM onlyonce.batches WHERE query = 'receive' AND expired > 0;
COMMENT ON VIEW onlyonce.expired IS 'Records from before the dedup horizon, by batch. `onlyonce expired` shows the rows.';
COMMENT ON COLUMN onlyonce.expired.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.expired.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.expired.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.expired.batch IS 'the receive batch';
COMMENT ON COLUMN onlyonce.expired.expired IS 'how many';
COMMENT ON COLUMN onlyonce.expired.run_id IS 'the run';
COMMENT ON COLUMN onlyonce.expired.committed_at IS 'when the batch was committed';
COMMENT ON COLUMN onlyonce.expired.location IS 'the Delta table with the rows, under the platform''s home';
