CREATE DOMAIN results.cents AS bigint CHECK (value >= 0);
CREATE TABLE results.shop (id text, at timestamptz, shop text, cents results.cents)
