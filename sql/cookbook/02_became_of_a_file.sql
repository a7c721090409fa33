-- What became of the records of an input file (or of a batch of files)?
-- Set: file, a part of its name. The log names the first and the last file of a batch, in the order in which they were read.
-- One record by its id: `onlyonce trace PIPELINE RECORD_ID`; a rejected one: 03.
\if :{?file} \else \set file '' \endif
SELECT instance, incarnation, batch, state, records_in, kept, duplicate, invalid, expired, end_offset->>'first' AS first_file, end_offset->>'last' AS last_file
FROM onlyonce.batches
WHERE query = 'receive' AND position(:'file' IN concat(end_offset->>'first', ' ', end_offset->>'last')) > 0
ORDER BY begun_at, incarnation, batch;
