"""Which promises about sandboxes hold on one engine, told from what the engine says of itself.

``docs/engines.md`` explains each; ``sandbox doctor`` prints them and ``cell.json`` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.engine.client import EngineInfo
from sandbox.engine.link import Isolation
from sandbox.evidence.cell import Guarantee

_ROOT = "run as root on the engine's own host"
_LIMITED = {
    "memory limit": ("memory", "a sandbox may use all memory of the engine's host"),
    "no swap": ("swap", "a sandbox may use swap beside its memory limit"),
    "process limit": ("pids", "a sandbox may start processes until the engine's host has no more"),
}
_LOGGED = "names that are looked up are recorded, and tries of bare addresses counted"
_WITH_QUOTAS = frozenset({"btrfs", "zfs"})


def guarantees(info: EngineInfo, isolation: Isolation) -> tuple[Guarantee, ...]:
    """Return every promise in a fixed order, for sandboxes with that model link.

    Args:
        info: what the engine says.
        isolation: the link that sandboxes there have, as ``choose_isolation`` tells.
    """
    return (
        _no_network(isolation),
        _egress_log(isolation),
        *_limits(info),
        _disk_limit(info),
        _process_tree(info),
        _resources(info),
        _seccomp(info),
        Guarantee(name="no new privileges", holds=True, reason="set for every sandbox"),
    )


def _no_network(isolation: Isolation) -> Guarantee:
    name = "no network"
    if isolation == "bridge":
        return Guarantee(
            name=name,
            holds=False,
            reason="ports of the engine's host that are bound to all addresses can be reached",
            cure=f"{_ROOT}, or choose the isolation 'relay'",
        )
    return Guarantee(name=name, holds=True, reason="a sandbox has no interface but lo")


def _egress_log(isolation: Isolation) -> Guarantee:
    name = "egress log"
    if isolation == "namespace":
        return Guarantee(name=name, holds=True, reason=_LOGGED)
    return Guarantee(
        name=name, holds=False, reason="names that are looked up are not recorded", cure=_ROOT
    )


def _limits(info: EngineInfo) -> Iterator[Guarantee]:
    for name, (key, otherwise) in _LIMITED.items():
        can = False if info.cgroup_driver == "none" else info.limits.get(key)
        told = {
            True: "the engine sets it",
            None: f"the engine does not say whether it limits {key}",
        }
        yield Guarantee(
            name=name,
            holds=can,
            reason=told.get(can, f"the engine cannot limit {key}: {otherwise}"),
            cure=None if can else f"give the engine's host the control group controller of {key}",
        )


def _disk_limit(info: EngineInfo) -> Guarantee:
    """Only /tmp and /dev/shm have a size; what the layer may grow to depends on the storage."""
    driver, below = info.storage_driver, info.backing or "an unknown file system"
    quotas = driver in _WITH_QUOTAS or (driver == "overlay2" and info.backing == "xfs")
    if quotas:
        reason = f"{driver} on {below} may have quotas, and none is asked for"
    else:
        reason = f"{driver} on {below} has no quotas: a sandbox can fill the engine's disk"
    cure = "keep the engine's data on a disk of its own"
    return Guarantee(name="disk limit", holds=None if quotas else False, reason=reason, cure=cure)


def _process_tree(info: EngineInfo) -> Guarantee:
    by_kernel = "a command ends with all its descendants, by the kernel's control groups"
    by_looking = (
        "a command ends with all its descendants, found from inside the sandbox; where they cannot "
        "be told from others, the sandbox ends with them"
    )
    reason = by_kernel if info.can_enter_namespaces else by_looking
    return Guarantee(name="process trees end", holds=True, reason=reason)


def _resources(info: EngineInfo) -> Guarantee:
    name = "resources counted"
    if info.cgroup_driver == "none":
        return Guarantee(
            name=name,
            holds=False,
            reason="the engine makes no control groups",
            cure="use an engine with control groups",
        )
    if info.can_enter_namespaces:
        reason = f"read from the kernel's control groups (v{info.cgroup_version})"
        return Guarantee(name=name, holds=True, reason=reason)
    return Guarantee(
        name=name,
        holds=None,
        reason="read inside of sandboxes: a task can end before its counts are read",
        cure=_ROOT,
    )


def _seccomp(info: EngineInfo) -> Guarantee:
    name = "system calls filtered"
    found = next((word for word in info.security if word.partition("=")[0] == "seccomp"), None)
    if found is None or found == "seccomp=unconfined":
        return Guarantee(
            name=name,
            holds=False,
            reason="the engine filters no system calls",
            cure="start the engine with its default seccomp profile, on a kernel with seccomp",
        )
    profile = found.partition("=")[2] or "its own"
    return Guarantee(name=name, holds=True, reason=f"seccomp, profile {profile}")
