"""Conformance suite for coding-agent harnesses in real Docker sandboxes."""
