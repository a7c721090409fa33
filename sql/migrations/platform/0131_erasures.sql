-- Records that a person has asked to be forgotten (`onlyonce forget`): a removal as by age, chosen by values of columns. The values are never stored.
ALTER TABLE onlyonce_private.removals ALTER COLUMN keep_events DROP NOT NULL, ALTER COLUMN before DROP NOT NULL;
ALTER TABLE onlyonce_private.removals ADD COLUMN kind text NOT NULL DEFAULT 'retention'
    CONSTRAINT removals_kind_known CHECK (kind IN ('retention', 'erasure'));
ALTER TABLE onlyonce_private.removals ADD CONSTRAINT removals_by_age_say_it
    CHECK (kind <> 'retention' OR (keep_events IS NOT NULL AND before IS NOT NULL));

CREATE TABLE onlyonce_private.erasures (
    instance     text    NOT NULL,
    removal_no   bigint  NOT NULL,
    columns      text[]  NOT NULL,
    salt         text    NOT NULL,
    fingerprint  text    NOT NULL,
    asked_by     text    NOT NULL,
    ids_too      boolean NOT NULL,
    todo         jsonb,
    ids          bytea,
    lines        bigint,
    windows      bigint,
    left_alone   text[],
    CONSTRAINT erasures_once PRIMARY KEY (instance, removal_no),
    CONSTRAINT erasures_of_a_removal FOREIGN KEY (instance, removal_no)
        REFERENCES onlyonce_private.removals (instance, removal_no) ON DELETE CASCADE
);
COMMENT ON TABLE onlyonce_private.erasures IS
    'The receipt of each erasure: which columns were asked for, never their values; and, while it is under way, the places that it has still to clear.';
