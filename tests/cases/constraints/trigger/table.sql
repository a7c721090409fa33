CREATE TABLE results.shop (id text, at timestamptz, shop text, cents bigint);
CREATE FUNCTION results.no_negative() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.cents < 0 THEN
        RAISE EXCEPTION 'cents of % is negative', NEW.id;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER no_negative BEFORE INSERT ON results.shop FOR EACH ROW EXECUTE FUNCTION results.no_negative()
