-- database --
-- Which database this is, by whatever address it was reached.
SELECT CONCAT('mysql:', @@hostname, ':', @@port, '/', DATABASE()) AS identity
