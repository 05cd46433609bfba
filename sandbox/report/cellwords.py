"""A cell's facts in words, shared by the page and ``sandbox show``."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox.evidence.folder import CellFiles
from sandbox.report.cut import cut
from sandbox.report.words import lacking


def facts(files: CellFiles) -> Iterator[tuple[str, str]]:
    """Yield identity and circumstances as name and text."""
    cell = files.cell
    yield "proves", cell.expectation.proves
    if cell.pin is not None:
        yield "version", f"{cell.pin.harness} {cell.pin.version}"
        yield "platform", cell.pin.platform
        yield "bundle", f"sha256:{cell.pin.bundle_sha256}"
    if files.install is not None:
        yield "says of itself", cut(files.install.version_output, 200)
    if cell.image_record is not None:
        image = cell.image_record
        yield "image", f"{image.name}, {image.libc}, {image.arch}, uid {image.uid}"
        yield "image ID", image.image_id
    if cell.engine is not None:
        product = f"{cell.engine.product} " if cell.engine.product else ""
        yield "engine", f"{product}{cell.engine.version} (API {cell.engine.api_version})"
    yield from (("not guaranteed", text) for text in lacking([cell]))
    yield "interface", f"{cell.interface or 'none'}, isolation {cell.isolation or 'none'}"
    for number, earlier in enumerate(cell.earlier_attempts, start=1):
        yield f"attempt {number}", f"the engine failed: {earlier.reason}"
    yield "rollout", cell.rollout_id
    witness = files.witness
    if witness is not None and witness.verifier is not None:
        yield "verifier", f"{witness.verifier.reward} ({witness.verifier.detail})"
    if witness is not None and witness.resources is not None:
        used = witness.resources
        yield "resources", f"{used.cpu_time_s} CPU s, peak {used.peak_memory_mib} MiB"
    for name, problem in files.problems.items():
        yield f"problem in {name}", problem


def processes(files: CellFiles) -> Iterator[str]:
    """Yield what became of the harness's process and what outlived it."""
    receipt = files.receipt
    if receipt is not None:
        cleanup = "confirmed" if receipt.cleanup_confirmed else "NOT confirmed"
        yield f"harness ended with {receipt.return_code}, clean-up {cleanup}"
        if receipt.timed_out:
            yield "the deadline stopped it"
        for one in receipt.survivors:
            yield f"survived the clean-up: {one.pid} {one.command}"
    if files.witness is not None and files.witness.survivors is not None:
        if not files.witness.survivors:
            yield "nothing was left running"
        for one in files.witness.survivors:
            yield f"left running: {one.pid} {one.command}"


def changes(files: CellFiles) -> Iterator[str]:
    """Yield the changes that the run made to the container's file system."""
    for change in files.footprint or ():
        yield f"{change.change} {change.path}"
