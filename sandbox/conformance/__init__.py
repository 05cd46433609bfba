"""Scenarios, witness, plan and runner: where the rooms meet."""
