-- Of an output whose panes have a trigger: the records of an open window that no pane has.
ALTER TABLE onlyonce_private.panes ADD COLUMN held bigint, ADD COLUMN held_since timestamptz;
COMMENT ON COLUMN onlyonce_private.panes.held IS 'How many records in time came since its last pane; NULL: none, or its output has no trigger.';
COMMENT ON COLUMN onlyonce_private.panes.held_since IS 'When the batch began that brought the first of them.';
CREATE INDEX panes_held ON onlyonce_private.panes (instance, output) WHERE held IS NOT NULL;
