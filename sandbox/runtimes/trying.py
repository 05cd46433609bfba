"""A bump carried out in a working copy: text, trees, lock; and put right after a first look."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.progress import Progress
from sandbox.runtimes.bump import Bump, output_edits
from sandbox.runtimes.library import RuntimeLibrary
from sandbox.runtimes.outdated import ask_with, released_with
from sandbox.runtimes.pinedit import Edit, edited
from sandbox.runtimes.pins import load_pins
from sandbox.runtimes.sources import Sources
from sandbox.runtimes.treesource import renew
from sandbox.runtimes.workingcopy import WorkingCopy


def carry_out(
    copy: WorkingCopy, bumps: Sequence[Bump], clients: Sources, progress: Progress
) -> None:
    """Make the edits of the bumps in the copy, and write its trees' sources anew."""
    _edit(copy, [edit for bump in bumps for edit in bump.edits])
    pins = load_pins(copy.pins_path)
    for bump in bumps:
        for tree in bump.trees:
            label = f"resolving the packages of {bump.harness} {bump.new}"
            with progress.step(label) as step:
                renew(
                    pins.tree[tree],
                    copy.pins_path,
                    old=bump.old,
                    new=bump.new,
                    clients=clients,
                    step=step,
                )


def expect_output(copy: WorkingCopy, bump: Bump, said: str) -> bool:
    """Pin what the program of the new version prints; say whether that changed the pins."""
    edits = output_edits(load_pins(copy.pins_path), bump.harness, bump.new, said)
    _edit(copy, edits)
    return bool(edits)


def lock_copy(library: RuntimeLibrary, harnesses: Sequence[str]) -> None:
    """Lock the copy's pins of these harnesses."""
    ask = ask_with(library.clients)
    library.update_lock(harnesses, released=released_with(library.pins, library.pins_path, ask))


def _edit(copy: WorkingCopy, edits: Sequence[Edit]) -> None:
    text = copy.pins_path.read_bytes().decode("utf-8")
    copy.pins_path.write_bytes(edited(text, edits).encode())
