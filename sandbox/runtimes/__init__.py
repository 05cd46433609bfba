"""Pinned harness runtimes: fetched, verified, bundled, stored, installed."""
