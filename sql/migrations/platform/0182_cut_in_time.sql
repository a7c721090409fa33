-- A batch that met a late record is not cut from the log, so `onlyonce.late` has each with its batch, and the sums of windows have none.
DROP VIEW IF EXISTS onlyonce_private.met_windows CASCADE;
ALTER TABLE onlyonce_private.window_sums DROP COLUMN late, DROP COLUMN late_batches;
COMMENT ON TABLE onlyonce_private.window_sums IS
    'What the batches of a life that are cut from the log had met of each window, all of it in time: a batch that met a late record stays.';
