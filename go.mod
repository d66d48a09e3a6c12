module testbed

go 1.26
