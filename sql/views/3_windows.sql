-- Windows: what is written, late and recomputed.

CREATE OR REPLACE VIEW onlyonce_private.met_windows AS
SELECT w.incarnation, w.batch_id, w.output, w.window_start, w.window_end, w.in_time, w.late, l.instance, b.max_event_time, b.run_id,
       EXISTS (SELECT 1 FROM onlyonce_private.backfills f
               WHERE (f.instance, f.output, f.state) = (l.instance, w.output, 'committed')
                 AND coalesce(w.late_from, w.window_start) >= f.window_from
                 AND coalesce(w.late_to, w.window_start) < f.window_to
                 AND f.events_version >= (b.source_to->>'reservoirVersion')::bigint
                     - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END) AS included,
       w.late_from, w.late_to, w.rejected, b.ingestion_time
FROM onlyonce_private.window_counts w JOIN onlyonce_private.batches b USING (incarnation, batch_id)
JOIN onlyonce_private.incarnations l USING (incarnation);
COMMENT ON VIEW onlyonce_private.met_windows IS
    'What each output batch met of each window, and whether a backfill has read it since (late rows are included by it).';

CREATE OR REPLACE VIEW onlyonce_private.met_in_all AS
SELECT m.instance, m.output, m.window_start, m.window_end, m.in_time, m.late, m.included, m.rejected FROM onlyonce_private.met_windows m
UNION ALL
SELECT l.instance, c.output, c.window_start, c.window_end, c.in_time, 0, true, c.rejected
FROM onlyonce_private.window_sums c JOIN onlyonce_private.incarnations l USING (incarnation);
COMMENT ON VIEW onlyonce_private.met_in_all IS
    'The same of the batches in the log, and of those that are cut from it (keep_log): none of these met a late record.';

-- In two parts, written windows and windows that were only met so far, so that a search by window uses the indexes. Left
-- joins, so that a query for the windows alone reads nothing else.
CREATE OR REPLACE VIEW onlyonce.windows AS
SELECT p.pipeline, n.instance, n.output, n.window_start, n.window_end, n.generation,
       CASE WHEN n.generation < newest.generation THEN 'replaced' WHEN n.final THEN 'closed'
            WHEN met.in_time > 0 THEN 'open' WHEN met.late > 0 THEN 'only late' WHEN met.rejected > 0 THEN 'only rejected' ELSE 'open' END AS state,
       n.rows, met.in_time, met.late, met.late_not_included, met.rejected, n.incarnation, n.batch_id AS batch, n.declaration_hash, n.committed_at
FROM onlyonce_private.panes n JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN LATERAL (
    SELECT max(x.generation) AS generation FROM onlyonce_private.panes x
    WHERE (x.instance, x.output, x.window_start, x.window_end) = (n.instance, n.output, n.window_start, n.window_end)) newest ON true
LEFT JOIN LATERAL (
    SELECT sum(m.in_time)::bigint AS in_time, sum(m.late)::bigint AS late, sum(m.rejected)::bigint AS rejected,
           coalesce(sum(m.late) FILTER (WHERE NOT m.included), 0)::bigint AS late_not_included
    FROM onlyonce_private.met_in_all m
    WHERE (m.instance, m.output, m.window_start, m.window_end) = (n.instance, n.output, n.window_start, n.window_end)
    HAVING count(*) > 0) met ON true
UNION ALL
SELECT p.pipeline, met.instance, met.output, met.window_start, met.window_end, 0,
       CASE WHEN met.in_time > 0 AND declared.kind = 'session' THEN 'hour of sessions' WHEN met.in_time > 0 THEN 'open' WHEN met.late > 0 THEN 'only late' WHEN met.rejected > 0 THEN 'only rejected' ELSE 'open' END,
       NULL, met.in_time, met.late, met.late_not_included, met.rejected, NULL, NULL, NULL, NULL
FROM (
    SELECT m.instance, m.output, m.window_start, m.window_end, sum(m.in_time)::bigint AS in_time, sum(m.late)::bigint AS late,
           coalesce(sum(m.late) FILTER (WHERE NOT m.included), 0)::bigint AS late_not_included, sum(m.rejected)::bigint AS rejected
    FROM onlyonce_private.met_in_all m
    WHERE m.window_start IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM onlyonce_private.panes n
        WHERE (n.instance, n.output, n.window_start, n.window_end) = (m.instance, m.output, m.window_start, m.window_end))
    GROUP BY 1, 2, 3, 4) met
JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN LATERAL (
    SELECT d.parts->'outputs'->met.output->'window'->>'kind' AS kind FROM onlyonce_private.declarations d
    WHERE d.instance = met.instance AND d.query = met.output ORDER BY d.first_seen_at DESC LIMIT 1) declared ON true;
COMMENT ON VIEW onlyonce.windows IS 'Each window of each output that has data, with its state and generation.';
COMMENT ON COLUMN onlyonce.windows.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.windows.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.windows.output IS 'the output';
COMMENT ON COLUMN onlyonce.windows.window_start IS 'its start, inclusive';
COMMENT ON COLUMN onlyonce.windows.window_end IS 'its end, exclusive';
COMMENT ON COLUMN onlyonce.windows.generation IS '0: written by the stream; then one for each backfill';
COMMENT ON COLUMN onlyonce.windows.state IS 'open: may still change by the stream. closed: what a reader sees, final until a backfill. replaced: an older generation. only late: all its rows came late, no result yet. only rejected: its function rejected all its rows. hour of sessions: no window, but the records in time whose event was in that hour; sessions are here once they are written';
COMMENT ON COLUMN onlyonce.windows.rows IS 'result rows';
COMMENT ON COLUMN onlyonce.windows.in_time IS 'records that are in the result; for an output made from another see that one';
COMMENT ON COLUMN onlyonce.windows.late IS 'records that came after it had closed';
COMMENT ON COLUMN onlyonce.windows.late_not_included IS 'of these, how many no backfill has included yet';
COMMENT ON COLUMN onlyonce.windows.rejected IS 'records that the stream met and its function rejected; 0 where it has none';
COMMENT ON COLUMN onlyonce.windows.incarnation IS 'the incarnation that wrote it';
COMMENT ON COLUMN onlyonce.windows.batch IS 'the batch that wrote it';
COMMENT ON COLUMN onlyonce.windows.declaration_hash IS 'declaration and functions that made it';
COMMENT ON COLUMN onlyonce.windows.committed_at IS 'when it was committed';

CREATE OR REPLACE VIEW onlyonce.panes AS
SELECT p.pipeline, n.instance, n.output, n.window_start, n.window_end, n.generation, n.final, n.rows, n.incarnation, n.batch_id AS batch,
       n.declaration_hash, n.lookups, n.committed_at, CASE WHEN NOT n.final THEN n.held END AS held, CASE WHEN NOT n.final THEN n.held_since END AS held_since,
       n.pane, n.rows_of_all_panes
FROM onlyonce_private.panes n JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.panes IS 'The windows that each output has written, by generation: what windows says of them, without what was read. Quick for a list in order.';
COMMENT ON COLUMN onlyonce.panes.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.panes.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.panes.output IS 'the output';
COMMENT ON COLUMN onlyonce.panes.window_start IS 'the window';
COMMENT ON COLUMN onlyonce.panes.window_end IS 'its end';
COMMENT ON COLUMN onlyonce.panes.generation IS '0: written by the stream; then one for each backfill. Readers see the highest of a window';
COMMENT ON COLUMN onlyonce.panes.final IS 'whether the window has closed; an older generation stays final';
COMMENT ON COLUMN onlyonce.panes.rows IS 'how many rows were written of it';
COMMENT ON COLUMN onlyonce.panes.incarnation IS 'instance/query/ordinal of the batch or backfill that wrote it last';
COMMENT ON COLUMN onlyonce.panes.batch IS 'that batch';
COMMENT ON COLUMN onlyonce.panes.declaration_hash IS 'the declaration that it was written under';
COMMENT ON COLUMN onlyonce.panes.lookups IS 'the version of each lookup that the batch or backfill saw which wrote it last';
COMMENT ON COLUMN onlyonce.panes.committed_at IS 'when';
COMMENT ON COLUMN onlyonce.panes.held IS 'of an open window: records that came since, and that no pane has (AfterRecords, AfterTime)';
COMMENT ON COLUMN onlyonce.panes.held_since IS 'when the batch began that brought the first of them';
COMMENT ON COLUMN onlyonce.panes.pane IS 'of an output with pane_column: the number of its last pane, from 0; rows with a smaller number are of earlier panes';
COMMENT ON COLUMN onlyonce.panes.rows_of_all_panes IS 'of an output with pane_column: how many rows the panes of this window have together; none after a backfill, which leaves one pane';

CREATE OR REPLACE VIEW onlyonce.late AS
SELECT p.pipeline, m.instance, m.output, m.incarnation, m.batch_id AS batch, m.window_start, m.window_end, m.late, m.included,
       m.max_event_time, m.run_id, 'data/' || m.instance || '/events' AS location
FROM onlyonce_private.met_windows m JOIN onlyonce_private.pipelines p USING (instance)
WHERE m.late > 0;
COMMENT ON VIEW onlyonce.late IS 'Records that met a closed window, by output batch and window. `onlyonce late` shows the rows.';
COMMENT ON COLUMN onlyonce.late.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.late.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.late.output IS 'the output whose window had closed';
COMMENT ON COLUMN onlyonce.late.incarnation IS 'instance/query/ordinal';
COMMENT ON COLUMN onlyonce.late.batch IS 'the batch of the output that met them';
COMMENT ON COLUMN onlyonce.late.window_start IS 'the window (for sessions: the hour of the event)';
COMMENT ON COLUMN onlyonce.late.window_end IS 'its end';
COMMENT ON COLUMN onlyonce.late.late IS 'how many (record, window) pairs';
COMMENT ON COLUMN onlyonce.late.included IS 'whether a backfill has included them since';
COMMENT ON COLUMN onlyonce.late.max_event_time IS 'the largest event time before the batch';
COMMENT ON COLUMN onlyonce.late.run_id IS 'the run';
COMMENT ON COLUMN onlyonce.late.location IS 'the Delta table with the rows, under the platform''s home';

CREATE OR REPLACE VIEW onlyonce.backfills AS
SELECT p.pipeline, f.instance, f.output, f.window_from, f.window_to, f.state, f.asked_by AS triggered_by, f.run_id, f.windows, f.rows,
       f.in_time, f.late, f.rejected, f.events_version, f.declaration_hash, f.lookups, f.incarnation, f.batch_id AS batch, f.epoch, f.begun_at, f.committed_at,
       greatest(f.window_to, (
           SELECT n.window_end FROM onlyonce_private.panes n
           WHERE n.instance = f.instance AND n.output = f.output AND n.window_start >= f.window_from AND n.window_start < f.window_to
           ORDER BY n.window_start DESC, n.window_end DESC LIMIT 1)) AS last_end
FROM onlyonce_private.backfills f JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.backfills IS 'Each recomputation of closed windows: the interval, who asked, what it read and wrote.';
COMMENT ON COLUMN onlyonce.backfills.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.backfills.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.backfills.output IS 'the output that reads events; those made from it are done with it';
COMMENT ON COLUMN onlyonce.backfills.window_from IS 'windows that start here or later (for sessions: after widening to what has merged)';
COMMENT ON COLUMN onlyonce.backfills.window_to IS 'and before this; last_end is the end of the last one';
COMMENT ON COLUMN onlyonce.backfills.state IS 'begun, committed, replaced (its driver ended; a later one did it again)';
COMMENT ON COLUMN onlyonce.backfills.triggered_by IS 'person: a backfill. late rows: the declaration asks for it (late)';
COMMENT ON COLUMN onlyonce.backfills.run_id IS 'the run (Airflow''s run id, or one of the shell)';
COMMENT ON COLUMN onlyonce.backfills.windows IS 'windows with rows now';
COMMENT ON COLUMN onlyonce.backfills.rows IS 'result rows written to the output itself';
COMMENT ON COLUMN onlyonce.backfills.in_time IS '(record, window) pairs that the stream had too';
COMMENT ON COLUMN onlyonce.backfills.late IS '(record, window) pairs that were late, included';
COMMENT ON COLUMN onlyonce.backfills.rejected IS '(record, window) pairs, late ones too, that it rejected; NULL: its output has no function for that';
COMMENT ON COLUMN onlyonce.backfills.events_version IS 'the version of events that was read: what the output''s stream had read';
COMMENT ON COLUMN onlyonce.backfills.declaration_hash IS 'declaration and functions that it ran with';
COMMENT ON COLUMN onlyonce.backfills.lookups IS 'then: each window saw the versions that it had seen; now: the newest; NULL: its output has no lookups';
COMMENT ON COLUMN onlyonce.backfills.incarnation IS 'instance/output@from--to/1';
COMMENT ON COLUMN onlyonce.backfills.batch IS 'counts the recomputations of the interval';
COMMENT ON COLUMN onlyonce.backfills.epoch IS 'the driver';
COMMENT ON COLUMN onlyonce.backfills.begun_at IS 'when it began';
COMMENT ON COLUMN onlyonce.backfills.committed_at IS 'when it was committed';
COMMENT ON COLUMN onlyonce.backfills.last_end IS 'the end of its last window; window_to is the time before which its windows start';

CREATE OR REPLACE VIEW onlyonce.watermark_markers AS
SELECT p.pipeline, l.instance, c.incarnation, c.marker_no, c.kind, c.state, c.max_event_time, c.ended AS ended_event_time,
       c.silent_max_event_time AS idle_event_time, c.silent_clock AS idle_clock, c.epoch, c.run_id, c.begun_at, c.committed_at, c.delta_version
FROM onlyonce_private.watermark_markers c JOIN onlyonce_private.incarnations l USING (incarnation)
JOIN onlyonce_private.pipelines p USING (instance);
COMMENT ON VIEW onlyonce.watermark_markers IS 'When the input was declared ended or the source was idle, so that windows closed without new records.';
COMMENT ON COLUMN onlyonce.watermark_markers.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.watermark_markers.instance IS 'the stream of the pipeline, or one of its bounded runs';
COMMENT ON COLUMN onlyonce.watermark_markers.incarnation IS 'the receive incarnation that wrote it';
COMMENT ON COLUMN onlyonce.watermark_markers.marker_no IS 'counts the watermark markers of an incarnation';
COMMENT ON COLUMN onlyonce.watermark_markers.kind IS 'ended (the input was declared so), silent (the source was idle for idle_after)';
COMMENT ON COLUMN onlyonce.watermark_markers.state IS 'begun, committed';
COMMENT ON COLUMN onlyonce.watermark_markers.max_event_time IS 'the largest event time kept so far';
COMMENT ON COLUMN onlyonce.watermark_markers.ended_event_time IS 'the max event time when the input was last declared ended: all windows up to there are closed';
COMMENT ON COLUMN onlyonce.watermark_markers.idle_event_time IS 'the max event time when the source was last found idle (idle_after)';
COMMENT ON COLUMN onlyonce.watermark_markers.idle_clock IS 'the clock less idle_after at that moment: windows that end up to there are closed';
COMMENT ON COLUMN onlyonce.watermark_markers.epoch IS 'the driver';
COMMENT ON COLUMN onlyonce.watermark_markers.run_id IS 'the run';
COMMENT ON COLUMN onlyonce.watermark_markers.begun_at IS 'when it began';
COMMENT ON COLUMN onlyonce.watermark_markers.committed_at IS 'when it was committed';
COMMENT ON COLUMN onlyonce.watermark_markers.delta_version IS 'the version of events that holds its control row';
