-- run_fates --
-- What became of the records that a run read.
SELECT query, count(*) AS batches, sum("in")::bigint AS "in", sum(kept)::bigint AS kept, sum(late)::bigint AS late,
       sum(duplicate)::bigint AS duplicate, sum(invalid)::bigint AS invalid, sum(remnant)::bigint AS remnant,
       sum(unknown_fields)::bigint AS unknown_fields
FROM onlyonce.batches WHERE run_id = :run_id AND state = 'committed'
GROUP BY query ORDER BY query = 'receive' DESC, query

-- run_commits --
-- The units that a run committed, by sink.
SELECT sink, kind, count(*) AS units, sum(rows)::bigint AS rows, max(epoch) AS epoch, max(committed_at) AS last
FROM onlyonce.commits WHERE run_id = :run_id GROUP BY sink, kind ORDER BY min(committed_at)

-- last_commits --
-- The last lines of the commit log.
SELECT unique_id, sink, epoch, kind, rows, left(content_hash, 8) AS content, committed_at
FROM onlyonce.commits WHERE pipeline = :pipeline ORDER BY committed_at DESC LIMIT :n

-- unconserved --
-- Batches whose records do not add up, or that began and did not commit.
SELECT c.*, b.state, b.run_id FROM onlyonce.conservation c
JOIN onlyonce.batches b ON (b.lineage, b.batch_id) = (c.lineage, c.batch) WHERE c.conserved IS NOT TRUE

-- conservation_summary --
-- Conservation by pipeline and stage.
SELECT instance, stage, count(*) AS batches, sum("in")::bigint AS "in", sum(kept)::bigint AS kept,
       sum(duplicate)::bigint AS duplicate, sum(invalid)::bigint AS invalid, sum(remnant)::bigint AS remnant,
       sum(in_time)::bigint AS in_time, sum(late)::bigint AS late, bool_and(conserved) AS conserved
FROM onlyonce.conservation GROUP BY instance, stage ORDER BY instance, stage = 'receive' DESC, stage

-- receive_against_outputs --
-- Each output has read what receive kept, version by version of events.
SELECT l.instance, l.query AS output, max(r.delta_version) FILTER (WHERE r.state = 'committed') AS received_upto
FROM onlyonce.lineages l LEFT JOIN onlyonce.batches r ON r.instance = l.instance AND r.query = 'receive'
WHERE l.query <> 'receive' AND l.state = 'live' GROUP BY 1, 2
