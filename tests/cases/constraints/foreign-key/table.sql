CREATE TABLE results.shops (shop text PRIMARY KEY);
INSERT INTO results.shops VALUES ('north');
CREATE TABLE results.shop (id text, at timestamptz, shop text REFERENCES results.shops DEFERRABLE INITIALLY DEFERRED, cents bigint)
