"""One adapter a file: how a harness is started and how its transcript is read."""
