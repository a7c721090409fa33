-- lock_instance --
-- Backfills of an instance begin one after the other, so that each sees which others are under way.
SELECT instance FROM onlyonce_private.pipelines WHERE instance = :instance FOR UPDATE

-- under_way --
-- Begun backfills of an output, of another interval, that share windows with this one; and whether a driver is running.
-- One whose driver has ended before it was settled has written nothing, so it keeps no other from its windows.
SELECT b.incarnation, b.window_from, b.window_to, b.run_id, b.asked_by, b.lookups, driver.at_work
FROM onlyonce_private.backfills b JOIN onlyonce_private.incarnations l USING (incarnation),
     LATERAL (SELECT onlyonce_private.at_work(l.incarnation_no, b.epoch)) driver (at_work)
WHERE (driver.at_work OR b.windows IS NOT NULL) AND b.instance = :instance AND b.output = :output AND b.state = 'begun' AND b.incarnation <> :incarnation
  AND b.window_from < :window_to AND b.window_to > :window_from
ORDER BY b.begun_at LIMIT 1

-- settled --
-- The windows of an ended driver's unfinished backfill, if a sink may have some of their new rows: one at most.
SELECT window_from, window_to FROM onlyonce_private.backfills
WHERE incarnation = :incarnation AND state = 'begun' AND windows IS NOT NULL

-- replace_begun --
-- An ended driver's unfinished backfill. The interval is computed again from the start.
UPDATE onlyonce_private.backfills SET state = 'replaced' WHERE incarnation = :incarnation AND state = 'begun'

-- left_of_run --
-- The parts of an interval that no committed backfill of a run has had since a time.
SELECT lower(part) AS window_from, upper(part) AS window_to
FROM (
    SELECT unnest(
        tstzmultirange(tstzrange(CAST(:window_from AS timestamptz), CAST(:window_to AS timestamptz)))
        - coalesce(range_agg(tstzrange(window_from, window_to)), CAST('{}' AS tstzmultirange))) AS part
    FROM onlyonce_private.backfills
    WHERE instance = :instance AND output = :output AND run_id = :run_id AND state = 'committed' AND committed_at >= :since
) parts ORDER BY window_from

-- give_up --
-- Backfills that failed for good: a later backfill of the interval begins from the start.
UPDATE onlyonce_private.backfills SET state = 'replaced' WHERE instance = :instance AND output = :output AND state = 'begun'

-- next --
-- The number of the next recomputation of an interval.
SELECT coalesce(max(batch_id), -1) + 1 AS batch_id FROM onlyonce_private.backfills WHERE incarnation = :incarnation

-- begin --
INSERT INTO onlyonce_private.backfills
    (incarnation, batch_id, instance, output, epoch, run_id, asked_by, window_from, window_to, events_version, declaration_hash,
     lookups, windows)
VALUES (:incarnation, :batch_id, :instance, :output, :epoch, :run_id, :asked_by, :window_from, :window_to, :events_version,
        :declaration_hash, :lookups, :windows)

-- settle --
-- Sessions may reach past the interval that was asked for. With a number of windows, which is none until the end, sinks may be
-- written.
UPDATE onlyonce_private.backfills SET window_from = :window_from, window_to = :window_to, windows = 0
WHERE incarnation = :incarnation AND batch_id = :batch_id AND state = 'begun'

-- state --
SELECT state FROM onlyonce_private.backfills WHERE incarnation = :incarnation AND batch_id = :batch_id

-- met --
-- How many (record, window) pairs of an interval an output's batches have met, up to a version of `events`. Batches
-- that were cut from the log have read less than that version.
SELECT coalesce(sum(met.in_time), 0)::bigint AS in_time, coalesce(sum(met.late), 0)::bigint AS late
FROM (SELECT w.in_time, w.late
      FROM onlyonce_private.window_counts w JOIN onlyonce_private.batches b USING (incarnation, batch_id)
      JOIN onlyonce_private.incarnations l USING (incarnation)
      WHERE l.instance = :instance AND w.output = :output AND w.window_start >= :window_from AND w.window_start < :window_to
        AND (b.source_to->>'reservoirVersion')::bigint
            - CASE WHEN coalesce((b.source_to->>'index')::bigint, 0) < 0 THEN 1 ELSE 0 END <= :events_version
      UNION ALL
      SELECT c.in_time, 0 FROM onlyonce_private.window_sums c JOIN onlyonce_private.incarnations l USING (incarnation)
      WHERE l.instance = :instance AND c.output = :output AND c.window_start >= :window_from AND c.window_start < :window_to) met

-- end --
UPDATE onlyonce_private.backfills
SET state = 'committed', committed_at = clock_timestamp(), windows = :windows, rows = :rows, in_time = :in_time, late = :late,
    rejected = :rejected
WHERE incarnation = :incarnation AND batch_id = :batch_id AND state = 'begun'

-- add_empty_panes --
-- Windows that had a result, or another declaration, and have no row now get a generation without rows. Runs after the new panes
-- were added.
INSERT INTO onlyonce_private.panes
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash)
SELECT last.instance, last.output, last.window_start, last.window_end, last.generation + 1, true, 0, :incarnation, :batch_id,
       :declaration_hash
FROM (SELECT DISTINCT ON (p.window_start, p.window_end) p.* FROM onlyonce_private.panes p
      WHERE p.instance = :instance AND p.output = :output
        AND p.window_start >= :window_from AND p.window_start < :window_to
      ORDER BY p.window_start, p.window_end, p.generation DESC) last
WHERE (last.incarnation, last.batch_id) <> (:incarnation, :batch_id)
  AND (last.rows > 0 OR last.declaration_hash <> :declaration_hash)

-- add_panes --
-- The next generation of each window. The stream's own generation is 0, even if the stream had nothing in time to
-- write.
INSERT INTO onlyonce_private.panes
    (instance, output, window_start, window_end, generation, final, rows, incarnation, batch_id, declaration_hash, lookups, pane)
SELECT :instance, :output, window_start, window_end, last.generation + 1, true, rows, :incarnation, :batch_id, :declaration_hash, lookups, pane
FROM unnest(
    CAST(:window_start AS timestamptz[]), CAST(:window_end AS timestamptz[]), CAST(:rows AS bigint[]), CAST(:lookups AS jsonb[]),
    CAST(:pane AS int[])
) AS made (window_start, window_end, rows, lookups, pane)
CROSS JOIN LATERAL (
    SELECT coalesce(max(known.generation), 0) AS generation FROM onlyonce_private.panes known
    WHERE known.instance = :instance AND known.output = :output AND known.window_start = made.window_start
      AND known.window_end = made.window_end
) last

-- read_by --
-- How far an output has read `events`: its last committed batch if its incarnation has one, and where the incarnation began.
SELECT last.start_offset AS source_from, last.end_offset AS source_to, coalesce((last.facts->>'stateless')::boolean, false) AS stateless,
       l.start_from
FROM onlyonce.incarnations l
LEFT JOIN LATERAL (
    SELECT b.start_offset, b.end_offset, b.facts FROM onlyonce.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' ORDER BY b.batch DESC LIMIT 1) last ON true
WHERE l.instance = :instance AND l.query = :output AND l.state <> 'closed'

-- frontier_at --
-- The frontier after the batches and watermark markers up to a version of `events`. A batch without an id catalog writes its
-- maximum one commit after its rows, in its own control row. A stream that has read only the rows has not closed
-- windows by this maximum yet. The values never move back, so the last rows of each incarnation suffice: one of the last two
-- batches has an id catalog, or is before the version.
SELECT max(greatest(batch.max_event_time_after, marker.max_event_time)) AS max_event_time, max(marker.ended_event_time) AS ended,
       max(marker.idle_event_time) AS silent_max_event_time, max(marker.idle_clock) AS silent_clock
FROM onlyonce.incarnations l
LEFT JOIN LATERAL (
    SELECT max(near.max_event_time_after) FILTER (
        WHERE near.delta_version + CASE WHEN near.mode = 'exactly_once' THEN 0 ELSE 1 END <= :version) AS max_event_time_after
    FROM (SELECT b.max_event_time_after, b.delta_version, b.mode FROM onlyonce.batches b
          WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version IS NOT NULL AND b.delta_version <= :version
          ORDER BY b.delta_version DESC LIMIT 2) near) batch ON true
LEFT JOIN LATERAL (
    SELECT c.max_event_time, c.ended_event_time, c.idle_event_time, c.idle_clock FROM onlyonce.watermark_markers c
    WHERE c.incarnation = l.incarnation AND c.state = 'committed' AND c.delta_version <= :version
    ORDER BY c.delta_version DESC LIMIT 1) marker ON true
WHERE l.instance = :instance AND l.query = 'receive'

-- open_rows --
-- Whether windows of an interval that are not closed hold rows in time.
SELECT EXISTS (
    SELECT 1 FROM onlyonce.windows
    WHERE instance = :instance AND output = :output AND window_start >= :window_from AND window_start < :window_to
      AND in_time > 0 AND (CAST(:closed_until AS timestamptz) IS NULL OR window_end > :closed_until)) AS found

-- windows_in --
-- The windows of some outputs that start in an interval, with what the log says about each.
SELECT output, window_start, window_end, generation, state, rows, in_time, late, late_not_included
FROM onlyonce.windows
WHERE instance = :instance AND output = ANY(:outputs) AND window_start >= :window_from AND window_start < :window_to
  AND state <> 'replaced'
ORDER BY output, window_start

-- late_in --
-- The windows of some outputs that start in an interval and have late records that no backfill has included.
SELECT l.output, l.window_start, l.window_end, sum(l.late)::bigint AS late_not_included
FROM onlyonce.late l
WHERE l.instance = :instance AND l.output = ANY(:outputs) AND l.window_start >= :window_from AND l.window_start < :window_to AND NOT l.included
GROUP BY l.output, l.window_start, l.window_end ORDER BY l.output, l.window_start

-- done --
-- The committed backfills of an output that share windows with an interval, and what they have read.
SELECT window_from, window_to, max(events_version) AS events_version FROM onlyonce_private.backfills
WHERE instance = :instance AND output = :output AND state = 'committed' AND window_from < :window_to AND window_to > :window_from
GROUP BY window_from, window_to ORDER BY window_from, window_to

-- begun_of_late --
-- The windows of the backfill for late rows that is begun: one at most, since they share an incarnation.
SELECT window_from, window_to FROM onlyonce_private.backfills
WHERE (instance, output, state, asked_by) = (:instance, :output, 'begun', 'late rows')

-- late_not_included --
-- Windows of an output with late rows that no backfill has included: how many rows, since the begin of which batch,
-- whether an ended driver has begun a backfill of them, and when the output's newest batch began. For sessions: where
-- in the hour the late rows are.
SELECT DISTINCT w.window_start, w.window_end, w.late_from, w.late_to, sum(w.late) OVER same_window::bigint AS late,
       min(w.ingestion_time) OVER same_window AS since, newest.ingestion_time AS now,
       EXISTS (SELECT 1 FROM onlyonce_private.backfills f
               WHERE (f.instance, f.output, f.state, f.asked_by) = (w.instance, w.output, 'begun', 'late rows')
                 AND coalesce(w.late_from, w.window_start) >= f.window_from
                 AND coalesce(w.late_from, w.window_start) < f.window_to) AS begun
FROM onlyonce_private.met_windows w
LEFT JOIN LATERAL (
    SELECT b.ingestion_time FROM onlyonce_private.incarnations l JOIN onlyonce_private.batches b USING (incarnation)
    WHERE l.instance = w.instance AND l.query = w.output AND l.state <> 'closed' AND b.state = 'committed'
    ORDER BY b.batch_id DESC LIMIT 1) newest ON true
WHERE w.instance = :instance AND w.output = :output AND w.late > 0 AND NOT w.included
WINDOW same_window AS (PARTITION BY w.window_start, w.window_end)
ORDER BY w.window_start
