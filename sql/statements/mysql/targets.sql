-- database --
-- The identity of this database, whatever address it was reached by.
SELECT CONCAT('mysql:', @@hostname, ':', @@port, '/', DATABASE()) AS identity
