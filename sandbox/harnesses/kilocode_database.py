"""Kilo's database in the form that OpenCode's reader knows; the evidence itself is never opened.

Kilo is a fork of OpenCode, and its tables are the same but for two things.

7.7.7 has indexes that call JSON functions. SQLite 3.38 to 3.40 takes its own JSON functions for
unsafe ones, so that under a distrusted schema it calls the whole database malformed. The indexes
are of no use to a reader: they are struck from a copy.

7.0.33 keeps no history of events. Its tool parts keep the time when the call began, which those of
its successors lose, so the event that the reader looks for is made of it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from sandbox.harnesses.sqlite_copy import copy_database, distrusting

_STRIKE = "DELETE FROM sqlite_master WHERE type = 'index' AND sql LIKE '%json_%'"
_HAS_EVENTS = "SELECT 1 FROM sqlite_master WHERE name = 'event'"
_EVENTS = """
    CREATE TABLE event AS
    SELECT 'message.part.updated' AS type, json_object('part', json_object(
        'id', id, 'type', 'tool', 'state', json_object(
            'status', 'running',
            'time', json_object('start', json_extract(data, '$.state.time.start'))
    ))) AS data
    FROM part
    WHERE json_valid(data) AND json_extract(data, '$.type') = 'tool'
"""


def copy_for_reader(path: Path, copy: Path) -> None:
    """Copy a database with its log, and bring the copy into the reader's form.

    What cannot be brought into it is left as it is: the reader tells what it cannot read.
    """
    copy_database(path, copy)
    with contextlib.suppress(sqlite3.Error):
        _strike_indexes(copy)
        _add_events(copy)


def _strike_indexes(copy: Path) -> None:
    with distrusting(copy) as connection:
        # Opens what is there beside an object that cannot be loaded.
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(_STRIKE)
        connection.commit()


def _add_events(copy: Path) -> None:
    with distrusting(copy) as connection:
        if connection.execute(_HAS_EVENTS).fetchone() is None:
            connection.execute(_EVENTS)
            connection.commit()
