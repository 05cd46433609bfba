"""Verdicts in, text out: terminal, markdown, JSON, JUnit, CTRF, HTML."""
