-- In the database of a MySQL sink: who may commit (epochs), what has committed (units), whose an incarnation is, which database this is.
-- Every statement may run again: a CREATE TABLE commits by itself here, so a start that was killed leaves some of them.
CREATE TABLE IF NOT EXISTS onlyonce_epochs (
    incarnation VARCHAR(512) NOT NULL,
    epoch   BIGINT NOT NULL,
    CONSTRAINT onlyonce_epochs_once PRIMARY KEY (incarnation),
    CONSTRAINT onlyonce_epoch_counts_from_one CHECK (epoch >= 1)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'The number of the driver that may commit for an incarnation; each commit reads it with a shared lock';

CREATE TABLE IF NOT EXISTS onlyonce_units (
    unique_id    VARCHAR(512) NOT NULL,
    incarnation      VARCHAR(512) NOT NULL,
    batch_id     BIGINT NOT NULL,
    sink         VARCHAR(255) NOT NULL,
    `partition`  INT NOT NULL,
    epoch        BIGINT NOT NULL,
    attempt      VARCHAR(255) NOT NULL,
    kind         VARCHAR(16) NOT NULL,
    `rows`       BIGINT,
    content_hash VARCHAR(64),
    float_sums   LONGTEXT,
    committed_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    writes       INT NOT NULL DEFAULT 1,
    CONSTRAINT onlyonce_units_unique_id PRIMARY KEY (unique_id),
    CONSTRAINT onlyonce_units_identity_is_the_unique_id
        CHECK (unique_id = CONCAT(incarnation, '/', batch_id, '/', sink, '/', `partition`)),
    CONSTRAINT onlyonce_units_kind_known CHECK (kind IN ('data', 'plain')),
    CONSTRAINT onlyonce_units_only_plain_is_written_again CHECK (writes = 1 OR kind = 'plain'),
    INDEX onlyonce_units_by_batch (incarnation, batch_id)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'One row for each committed unit, inserted as the first statement of the transaction that holds its rows';

CREATE TABLE IF NOT EXISTS onlyonce_owners (
    incarnation  VARCHAR(512) NOT NULL,
    platform CHAR(36) NOT NULL,
    CONSTRAINT onlyonce_owners_one_for_each_incarnation PRIMARY KEY (incarnation)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'The platform that was first to tell its epoch of an incarnation here; another may not write under that name';

CREATE TABLE IF NOT EXISTS onlyonce_sessions (
    name    CHAR(36) NOT NULL,
    number  BIGINT NOT NULL,
    epoch   BIGINT NOT NULL,
    CONSTRAINT onlyonce_sessions_once PRIMARY KEY (name),
    INDEX onlyonce_sessions_by_number (number, epoch)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'The names of locks that sessions of drivers hold, so that a newer driver can end those of an older one';

CREATE TABLE IF NOT EXISTS onlyonce_this_database (
    one INT NOT NULL,
    id  CHAR(36) NOT NULL,
    CONSTRAINT onlyonce_this_database_is_one PRIMARY KEY (one),
    CONSTRAINT onlyonce_this_database_one_is_one CHECK (one = 1)
) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
  COMMENT = 'The one id of this database, which goes with it into backups';

INSERT IGNORE INTO onlyonce_this_database (one, id) VALUES (1, UUID());
