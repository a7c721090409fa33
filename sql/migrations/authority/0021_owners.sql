-- Whose a lineage is here: two platforms may have pipelines of the same name and one database for their sinks.
CREATE TABLE onlyonce_private.owners (
    lineage  text NOT NULL,
    platform uuid NOT NULL,
    CONSTRAINT owners_one_for_each_lineage PRIMARY KEY (lineage)
);
COMMENT ON TABLE onlyonce_private.owners IS
    'The platform (the id of its database) that was first to tell its epoch of a lineage here. Another one may not write under that name.';
