CREATE TABLE results.shop (id text, at timestamptz, shop text, cents bigint CHECK (cents >= 0))
