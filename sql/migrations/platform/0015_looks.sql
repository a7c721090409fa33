-- What the doctor's last look has found, for the page and for whoever reads by SQL: it looks at disks too, which no view can.
CREATE TABLE onlyonce_private.looks (
    last      boolean PRIMARY KEY DEFAULT true,
    looked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    found     jsonb NOT NULL,
    CONSTRAINT looks_keep_the_last CHECK (last),
    CONSTRAINT looks_found_a_list CHECK (jsonb_typeof(found) = 'array')
);
COMMENT ON TABLE onlyonce_private.looks IS 'The last look of the doctor: one row, and none before the first.';
