-- compacted --
-- Up to which version of `events` files may have been rewritten.
SELECT events_compacted AS upto FROM onlyonce_private.pipelines WHERE instance = :instance

-- raise --
-- The version never moves back, even if several commands raise it.
UPDATE onlyonce_private.pipelines SET events_compacted = :upto WHERE instance = :instance AND events_compacted < :upto

-- ended --
-- The last version of `events`, at most `upto`, with the rows of a committed batch of receive. No driver needs only a
-- part of that commit or an earlier one.
SELECT max(last.delta_version) AS version
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    SELECT b.delta_version FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version IS NOT NULL
      AND (CAST(:upto AS bigint) IS NULL OR b.delta_version <= CAST(:upto AS bigint))
    ORDER BY b.delta_version DESC LIMIT 1) last
WHERE l.instance = :instance AND l.query = 'receive'

-- records --
-- How many records receive has kept in a range of versions of `events`.
SELECT coalesce(sum(b.kept), 0)::bigint AS records
FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed'
  AND b.delta_version > :after AND b.delta_version <= :upto

-- holds --
-- The last version of a range up to which receive has kept at most this number of records, or the first version. Asked once
-- for each part of a first reading.
SELECT coalesce(max(version) FILTER (WHERE so_far <= :records), min(version)) AS version
FROM (
    SELECT b.delta_version AS version, sum(b.kept) OVER (ORDER BY b.delta_version) AS so_far
    FROM onlyonce_private.batches b JOIN onlyonce_private.incarnations l USING (incarnation)
    WHERE l.instance = :instance AND l.query = 'receive' AND b.state = 'committed'
      AND b.delta_version > :after AND b.delta_version <= :upto) waiting

-- queries --
-- The live incarnations, each with what its last committed batch has read.
SELECT l.incarnation, l.query, l.ordinal, l.start_from, last.batch_id, last.source_from, last.source_to
FROM onlyonce_private.incarnations l
LEFT JOIN LATERAL (
    SELECT b.batch_id, b.source_from, b.source_to FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' ORDER BY b.batch_id DESC LIMIT 1) last ON true
WHERE l.instance = :instance AND l.kind = 'stream' AND l.state <> 'closed'
ORDER BY l.query

-- last_in --
-- The last batch of each incarnation of receive whose rows are in `events` up to a version. Numbers and versions of an incarnation
-- grow together.
SELECT l.incarnation, last.batch_id
FROM onlyonce_private.incarnations l
CROSS JOIN LATERAL (
    SELECT b.batch_id FROM onlyonce_private.batches b
    WHERE b.incarnation = l.incarnation AND b.state = 'committed' AND b.delta_version <= :version
    ORDER BY b.delta_version DESC LIMIT 1) last
WHERE l.instance = :instance AND l.query = 'receive'
