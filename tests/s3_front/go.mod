module onlyonce/tests/s3_front

go 1.24
