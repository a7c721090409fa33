-- What operators did and what was found.

CREATE OR REPLACE VIEW onlyonce.alerts AS
SELECT kind, subject, what, raised_at, told_at AS notified_at
FROM onlyonce_private.alerts;
COMMENT ON VIEW onlyonce.alerts IS 'The causes of alerts that have not cleared. `onlyonce alerts` checks again.';
COMMENT ON COLUMN onlyonce.alerts.kind IS 'conservation, lag, no progress, unread input, source away, near horizon, failed run';
COMMENT ON COLUMN onlyonce.alerts.subject IS 'the pipeline, and the stage where there is one';
COMMENT ON COLUMN onlyonce.alerts.what IS 'what was found when it was raised';
COMMENT ON COLUMN onlyonce.alerts.raised_at IS 'when it was first seen';
COMMENT ON COLUMN onlyonce.alerts.notified_at IS 'when the hook was called; none while it has failed, or there is none';

CREATE OR REPLACE VIEW onlyonce.findings AS
SELECT l.looked_at, f.finding, f."where" AS subject, f.what, f.data, f.repair, f.fix
FROM onlyonce_private.looks l
LEFT JOIN LATERAL jsonb_to_recordset(l.found) AS f (finding text, "where" text, what text, data text, repair text, fix text) ON true;
COMMENT ON VIEW onlyonce.findings IS 'What the last `onlyonce doctor`, or the hourly DAG onlyonce_audit, has found stuck. One row without a finding: nothing. No row: the doctor has not run yet.';
COMMENT ON COLUMN onlyonce.findings.looked_at IS 'when that was; what was repaired since is still here until the next check';
COMMENT ON COLUMN onlyonce.findings.finding IS 'which kind';
COMMENT ON COLUMN onlyonce.findings.subject IS 'the batch, incarnation, file or table';
COMMENT ON COLUMN onlyonce.findings.what IS 'what happened';
COMMENT ON COLUMN onlyonce.findings.data IS 'what it means for the data';
COMMENT ON COLUMN onlyonce.findings.repair IS 'the command that repairs it';
COMMENT ON COLUMN onlyonce.findings.fix IS 'whether `onlyonce doctor --fix` does so: yes; with --yes, since it takes something away; no, a person must';

CREATE OR REPLACE VIEW onlyonce.reprocessings AS
SELECT p.pipeline, r.instance, r.reprocessing_no, r.kind, r.state, s.rows, r.lines, r.left_out, r.still_invalid, r.path AS file,
       r.run_id, b.run_id AS taken_in_by, b.incarnation, b.batch_id AS batch, r.begun_at, r.reprocessed_at, b.committed_at AS taken_in_at
FROM onlyonce_private.reprocessings r JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN LATERAL (SELECT sum(x.rows)::bigint AS rows FROM onlyonce_private.reprocessed_sets x
                   WHERE x.reprocessing_no = r.reprocessing_no) s ON true
LEFT JOIN onlyonce_private.batches b ON b.state = 'committed' AND b.source_to->'reprocessed' @> to_jsonb(r.path)
    AND b.incarnation IN (SELECT l.incarnation FROM onlyonce_private.incarnations l WHERE l.instance = r.instance);
COMMENT ON VIEW onlyonce.reprocessings IS 'Rows of invalid or expired that were put into the inbox again, and the run that took them in.';
COMMENT ON COLUMN onlyonce.reprocessings.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.reprocessings.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.reprocessings.reprocessing_no IS 'counts the reprocessings of the platform';
COMMENT ON COLUMN onlyonce.reprocessings.kind IS 'invalid, expired';
COMMENT ON COLUMN onlyonce.reprocessings.state IS 'begun (the next reprocessing finishes it), reprocessed';
COMMENT ON COLUMN onlyonce.reprocessings.rows IS 'rows of events that it took; a file that could not be read is one';
COMMENT ON COLUMN onlyonce.reprocessings.lines IS 'lines of its file: input again, and counted as such';
COMMENT ON COLUMN onlyonce.reprocessings.left_out IS 'lines that were left out, since a record with their id is kept';
COMMENT ON COLUMN onlyonce.reprocessings.still_invalid IS 'of the lines, how many were not records by the declaration of that moment';
COMMENT ON COLUMN onlyonce.reprocessings.file IS 'its file in the inbox; none when all was left out';
COMMENT ON COLUMN onlyonce.reprocessings.run_id IS 'the command that began it';
COMMENT ON COLUMN onlyonce.reprocessings.taken_in_by IS 'the run that read the file';
COMMENT ON COLUMN onlyonce.reprocessings.incarnation IS 'the receive incarnation of that batch';
COMMENT ON COLUMN onlyonce.reprocessings.batch IS 'the receive batch that read the file';
COMMENT ON COLUMN onlyonce.reprocessings.begun_at IS 'when it began';
COMMENT ON COLUMN onlyonce.reprocessings.reprocessed_at IS 'when its file was in the inbox';
COMMENT ON COLUMN onlyonce.reprocessings.taken_in_at IS 'when that batch was committed';

CREATE OR REPLACE VIEW onlyonce.removals AS
SELECT p.pipeline, m.instance, m.removal_no, m.kind, m.state, m.keep_events, m.before AS records_before, e.columns, e.asked_by, e.ids_too,
       r.kept, r.invalid, r.expired, r.batches, e.lines, e.windows, e.left_alone, e.fingerprint,
       m.files, m.events_version, m.begun_at, m.done_at
FROM onlyonce_private.removals m JOIN onlyonce_private.pipelines p USING (instance)
LEFT JOIN onlyonce_private.erasures e USING (instance, removal_no)
LEFT JOIN LATERAL (
    SELECT coalesce(sum(x.rows) FILTER (WHERE x.fate = 'kept'), 0)::bigint AS kept,
           coalesce(sum(x.rows) FILTER (WHERE x.fate = 'invalid'), 0)::bigint AS invalid,
           coalesce(sum(x.rows) FILTER (WHERE x.fate = 'expired'), 0)::bigint AS expired,
           count(DISTINCT (x.incarnation, x.batch_id)) AS batches
    FROM onlyonce_private.removed_rows x WHERE (x.instance, x.removal_no) = (m.instance, m.removal_no)) r ON true;
COMMENT ON VIEW onlyonce.removals IS 'Records that were removed from events for good: older than the pipeline keeps (keep_events), or erased on request (onlyonce forget).';
COMMENT ON COLUMN onlyonce.removals.pipeline IS 'the declared pipeline';
COMMENT ON COLUMN onlyonce.removals.instance IS 'the pipeline on its stream';
COMMENT ON COLUMN onlyonce.removals.removal_no IS 'counts the removals of the pipeline';
COMMENT ON COLUMN onlyonce.removals.kind IS 'retention (by age), erasure (on request)';
COMMENT ON COLUMN onlyonce.removals.state IS 'begun (the next onlyonce maintain, or the same onlyonce forget, finishes it), done';
COMMENT ON COLUMN onlyonce.removals.keep_events IS 'what the declaration said';
COMMENT ON COLUMN onlyonce.removals.records_before IS 'records from before this event time went; an invalid one has none, so its ingestion time counted';
COMMENT ON COLUMN onlyonce.removals.columns IS 'erasure: by which columns the records were chosen; their values are not stored';
COMMENT ON COLUMN onlyonce.removals.asked_by IS 'erasure: who asked for it';
COMMENT ON COLUMN onlyonce.removals.ids_too IS 'erasure: whether the record ids were forgotten too, so that a re-delivery is a new record';
COMMENT ON COLUMN onlyonce.removals.lines IS 'erasure: lines of input files that were blanked';
COMMENT ON COLUMN onlyonce.removals.windows IS 'erasure: intervals of windows that were computed again';
COMMENT ON COLUMN onlyonce.removals.left_alone IS 'erasure: what could not be erased, by name';
COMMENT ON COLUMN onlyonce.removals.fingerprint IS 'erasure: HMAC-SHA256 of the condition, by which the same one is known again';
COMMENT ON COLUMN onlyonce.removals.kept IS 'how many that were kept';
COMMENT ON COLUMN onlyonce.removals.invalid IS 'how many invalid ones';
COMMENT ON COLUMN onlyonce.removals.expired IS 'how many expired records';
COMMENT ON COLUMN onlyonce.removals.batches IS 'of how many receive batches';
COMMENT ON COLUMN onlyonce.removals.files IS 'how many data files had such rows';
COMMENT ON COLUMN onlyonce.removals.events_version IS 'the version of events from which they are gone';
COMMENT ON COLUMN onlyonce.removals.begun_at IS 'when it began';
COMMENT ON COLUMN onlyonce.removals.done_at IS 'when it was done; the files leave the disk a day later';

CREATE OR REPLACE VIEW onlyonce.formats AS
SELECT part, format, made_at FROM onlyonce_private.formats;
COMMENT ON VIEW onlyonce.formats IS 'The format in which the tables behind the views were made. A version of onlyonce that needs another one refuses this database.';
COMMENT ON COLUMN onlyonce.formats.part IS 'authority: epochs and units; platform: the log';
COMMENT ON COLUMN onlyonce.formats.format IS 'its name';
COMMENT ON COLUMN onlyonce.formats.made_at IS 'when the tables were made';
