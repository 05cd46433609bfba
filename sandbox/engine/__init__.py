"""Sandboxes on a Docker engine: the only room that knows docker and testcontainers."""
