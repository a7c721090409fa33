-- database --
-- The identity of this database, whichever address was used to reach it.
SELECT CONCAT('mysql:', @@hostname, ':', @@port, '/', DATABASE()) AS identity
