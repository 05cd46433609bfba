"""The host side of ``installers/``: pins, lock, fetch, store, bundles, installation."""
