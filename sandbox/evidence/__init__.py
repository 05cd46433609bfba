"""Records, joins, checks and verdicts: pure, no engine, no network, no clock."""
