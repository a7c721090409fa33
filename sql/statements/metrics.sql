-- stages --
-- The last incarnation of each query that is not closed: its driver, how far it is and how far behind.
SELECT l.instance AS pipeline, l.query AS stage, l.state, l.epoch, l.last_batch,
       extract(epoch FROM l.last_committed_at)::float AS last_commit, extract(epoch FROM g.max_event_time)::float AS max_event_time,
       extract(epoch FROM g.freshness)::float AS freshness, extract(epoch FROM g.system_lag)::float AS system_lag,
       g.batches_waiting, g.records_waiting, g.batches_begun, extract(epoch FROM g.catch_up)::float AS catch_up,
       extract(epoch FROM g.max_event_time - d.watermark_delay)::float AS watermark
FROM onlyonce.incarnations l LEFT JOIN onlyonce.lag g USING (incarnation)
LEFT JOIN LATERAL (
    SELECT (x.parts->'outputs'->l.query->>'watermark_delay')::interval AS watermark_delay FROM onlyonce.declarations x
    WHERE (x.instance, x.query) = (l.instance, l.query) ORDER BY x.first_seen_at DESC LIMIT 1) d ON true
WHERE l.state <> 'closed' ORDER BY l.instance, l.query = 'receive' DESC, l.query

-- records --
-- What became of all records of the committed batches.
SELECT instance AS pipeline, query AS stage, sum(batches)::bigint AS batches, sum(records_in)::bigint AS "in", sum(kept)::bigint AS kept,
       sum(duplicate)::bigint AS duplicate, sum(invalid)::bigint AS invalid, sum(expired)::bigint AS expired,
       sum(in_time)::bigint AS in_time, sum(late)::bigint AS late, sum(rejected)::bigint AS rejected, sum(written_again)::bigint AS written_again
FROM onlyonce.totals WHERE batches > 0 GROUP BY 1, 2 ORDER BY 1, 2

-- not_conserved --
-- How many of the last committed batches of each query do not add up when they are compared with their units and windows.
SELECT l.instance AS pipeline, l.query AS stage, count(*) FILTER (WHERE c.conserved IS NOT TRUE) AS not_conserved FROM (
    SELECT DISTINCT ON (instance, query) instance, query, incarnation, last_batch FROM onlyonce.incarnations
    WHERE last_batch IS NOT NULL ORDER BY instance, query, ordinal DESC) l
CROSS JOIN LATERAL (
    SELECT x.conserved FROM onlyonce.conservation x
    WHERE x.incarnation = l.incarnation AND x.batch > l.last_batch - :n AND x.batch <= l.last_batch OFFSET 0) c
GROUP BY 1, 2 ORDER BY 1, 2

-- look_ups --
-- Of the last batches: duplicates that were caught in the oldest tenth of the dedup horizon, and what the filters did.
SELECT l.instance AS pipeline, coalesce(sum(b.near_horizon), 0)::bigint AS near_horizon,
       coalesce(sum(b.lookups_spared), 0)::bigint AS lookups_spared, coalesce(sum(b.false_positives), 0)::bigint AS false_positives FROM (
    SELECT DISTINCT ON (instance) instance, incarnation, last_batch FROM onlyonce.incarnations
    WHERE query = 'receive' AND last_batch IS NOT NULL ORDER BY instance, ordinal DESC) l
CROSS JOIN LATERAL (
    SELECT x.near_horizon, x.lookups_spared, x.false_positives FROM onlyonce.batches x
    WHERE x.incarnation = l.incarnation AND x.batch > l.last_batch - :n AND x.batch <= l.last_batch AND x.state = 'committed' OFFSET 0) b
GROUP BY 1 ORDER BY 1

-- catalog --
-- What the record catalog holds: 16 bytes an id, the rest are filters.
SELECT instance AS pipeline, sum(ids)::bigint AS ids, sum(chunks)::bigint AS chunks, sum(bytes)::bigint AS bytes,
       sum(bytes - 16 * ids)::bigint AS filter_bytes
FROM onlyonce.record_ids GROUP BY 1 ORDER BY 1

-- backlog --
-- What each source said that no batch has read; null once the answer is too old.
SELECT pipeline, stage, backlog_bytes, backlog_records, extract(epoch FROM oldest_unread_age)::float AS age,
       extract(epoch FROM catch_up)::float AS catch_up, CASE WHEN is_current THEN answered::int END AS answered
FROM onlyonce.backlog ORDER BY pipeline, stage

-- alerts --
-- The causes of alerts that have not cleared, by kind.
SELECT kind, count(*) AS alerts FROM onlyonce.alerts GROUP BY 1 ORDER BY 1
