"""``--scheduler`` that cannot work is refused before anything is made ready."""

from __future__ import annotations

import socket

import pytest

from sandbox.commands.cluster import expect_cluster
from sandbox.errors import PrerequisiteMissing, UsageError


def test_without_the_extra_the_cure_names_it() -> None:
    with pytest.raises(PrerequisiteMissing) as told:
        expect_cluster("tcp://127.0.0.1:1", package="no_such_package")
    assert "sandbox[dask]" in str(told.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "tcp://", "tcp://host", "tcp://host:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is no address of a scheduler"):
        expect_cluster(address)


def test_a_scheduler_that_does_not_listen_is_a_missing_prerequisite() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        expect_cluster(address)
    with pytest.raises(PrerequisiteMissing, match="no Dask scheduler can be reached"):
        expect_cluster(address)


def test_an_agent_server_and_a_cluster_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--agent-url names a server beside one engine"):
        expect_cluster("tcp://127.0.0.1:1", agent="http://127.0.0.1:2")
