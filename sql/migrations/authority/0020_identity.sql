-- Who this database is: a variable that names another database from now on is noticed, however alike the two are.
CREATE TABLE onlyonce_private.this_database (
    one boolean NOT NULL DEFAULT true,
    id  uuid NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT this_database_is_one PRIMARY KEY (one),
    CONSTRAINT this_database_one_is_true CHECK (one)
);
INSERT INTO onlyonce_private.this_database DEFAULT VALUES;
COMMENT ON TABLE onlyonce_private.this_database IS
    'The one id of this database, which goes with it into backups. A platform remembers it for each lineage that writes here.';
