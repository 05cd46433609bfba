"""Looks an image over in about a second, and foretells what each harness will do in it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from sandbox.agents.look import Look
from sandbox.agents.overlap import Mount, mount_of
from sandbox.conformance.conditions import is_bare, limits_under
from sandbox.conformance.forecast import Runtimes, foretell, foretell_refusal, seen_roots
from sandbox.conformance.imagenames import reference_of
from sandbox.conformance.imagenotes import PROJECT_FILES, locale_of, notes
from sandbox.conformance.prepare import find_image
from sandbox.conformance.ways import Way, choose_way, room_of
from sandbox.engine.client import Engine
from sandbox.engine.facts import ARCHITECTURES, ImageFacts
from sandbox.engine.imagebuild.store import FoundImage
from sandbox.engine.limits import DEFAULT_LIMITS, Limits
from sandbox.engine.owner import Ownership
from sandbox.engine.sandbox import Sandbox
from sandbox.engine.still import still_facts
from sandbox.errors import CouldNotFindOut, SandboxError, Unsupported
from sandbox.evidence.preflight import ImagePreflight, Note, PlaceFacts, PreflightReport
from sandbox.harnesses.base import Harness
from sandbox.progress import PlainProgress, Progress

_OPTIONS = ("ro", "noexec", "nosuid", "nodev")
_SAME = (
    *("platform", "architecture", "distribution", "libc", "libc_version", "loaders"),
    *("uid", "gid", "user", "home", "workdir", "sh", "ca_file"),
)
_MORE = ("/dev/shm", "/var/tmp")  # noqa: S108 - they are looked at
_FIND = """
workdir=$1 home=$2
shift 2
for name do
    [ ! -e "$workdir/$name" ] || printf 'workdir %s\\n' "$name"
    [ ! -e "$home/$name" ] || printf 'home %s\\n' "$name"
done
"""


def preflight(
    engine: Engine,
    names: Sequence[str],
    harnesses: Mapping[str, Harness],
    library: Runtimes,
    progress: Progress,
    *,
    jobs: int | None = None,
    conditions: Sequence[str] = (),
    way: Way | None = None,
) -> PreflightReport:
    """Look every image over, ``jobs`` at a time; an image that fails is a line of the report.

    Args:
        engine: where they run; images that it does not have are built or pulled first.
        names: what cells call them (``imagenames``).
        harnesses: by name.
        library: their locks.
        progress: counts images.
        jobs: one more than cores by default, since a look waits for the engine a lot.
        conditions: what the sandboxes are made harder by.
        way: how runtimes will get into sandboxes (None: as by default).
    """
    began = time.monotonic()
    limits = limits_under(conditions)
    at_once = jobs or (os.cpu_count() or 1) + 1
    found: dict[str, ImagePreflight] = {}
    library.entries()  # the locks are read once, before threads ask for them
    with (
        progress.step(f"looking at {len(names)} image(s)") as step,
        ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="preflight") as pool,
    ):
        step.total(len(names))
        futures = [
            pool.submit(
                look_over,
                engine,
                name,
                harnesses,
                library,
                limits=limits,
                way=way,
                bare=is_bare(conditions),
            )
            for name in names
        ]
        for future in as_completed(futures):
            one = future.result()
            found[one.name] = one
            step.advance(1)
            progress.say(
                f"{one.name}: {one.error or one.platform or one.libc} ({one.seconds:.1f} s)"
            )
    return PreflightReport(
        images=tuple(found[name] for name in names),
        seconds=round(time.monotonic() - began, 3),
        jobs=at_once,
        engine=f"{engine.info.product} {engine.info.version}",
        conditions=tuple(conditions),
    )


def look_over(
    engine: Engine,
    name: str,
    harnesses: Mapping[str, Harness],
    library: Runtimes,
    *,
    limits: Limits = DEFAULT_LIMITS,
    way: Way | None = None,
    bare: bool = False,
) -> ImagePreflight:
    """Look one image over; what cannot be found out is the record's ``error``."""
    began = time.monotonic()
    try:
        image = find_image(engine, name, PlainProgress(quiet=True))
        looking = _Looking(
            engine=engine,
            name=name,
            image=image,
            harnesses=harnesses,
            library=library,
            limits=limits,
            way=way or choose_way("auto"),
            bare=bare,
        )
        record = looking.record()
    except SandboxError as error:
        record = ImagePreflight(
            name=name, reference=reference_of(name), error=error.message, cure=error.cure
        )
    return record.model_copy(update={"seconds": round(time.monotonic() - began, 3)})


@dataclass(frozen=True, kw_only=True)
class _Looking:
    """One image under the look."""

    engine: Engine
    name: str
    image: FoundImage
    harnesses: Mapping[str, Harness]
    library: Runtimes
    limits: Limits
    way: Way
    bare: bool

    def record(self) -> ImagePreflight:
        owner = Ownership.current(run_id="preflight", cell_id=self.name)
        try:
            with Sandbox(
                self.engine,
                self.image.image_id,
                owner=owner,
                limits=self.limits,
                bare=self.bare,
            ) as box:
                return self._asked(box)
        except Unsupported as error:
            return self._read(error)

    def _asked(self, box: Sandbox) -> ImagePreflight:
        facts = box.facts()
        look = seen_roots(box, facts, _MORE)
        project, at_home = _project_files(box, facts)
        return ImagePreflight(
            **self._facts(facts),
            places=_places(look),
            notes=(*self._emulated(facts), *notes(self.image, facts, project, at_home)),
            forecasts=tuple(
                foretell(harness, self.library, facts, look, self._room)
                for harness in self.harnesses.values()
            ),
        )

    def _emulated(self, facts: ImageFacts) -> Iterator[Note]:
        own = ARCHITECTURES.get(self.engine.info.architecture)
        if facts.architecture != own:
            yield Note(
                kind="emulation",
                subject=facts.architecture,
                text=f"its programs run on {own} by an interpreter: several times slower",
            )

    def _room(self, size: int) -> int:
        return room_of(size, self.way, is_local=self.engine.info.is_local)

    def _read(self, error: Unsupported) -> ImagePreflight:
        """Say what files alone tell: nothing can be asked, and no harness can be seeded."""
        facts = still_facts(self.engine, self.image.image_id)
        return ImagePreflight(
            **self._facts(facts),
            notes=notes(self.image, facts, (), ()),
            forecasts=tuple(
                foretell_refusal(harness, error) for harness in self.harnesses.values()
            ),
        )

    def _facts(self, facts: ImageFacts) -> dict[str, Any]:
        return {
            "name": self.name,
            "reference": reference_of(self.name),
            "image_id": self.image.image_id,
            "size": self.image.size,
            **{key: getattr(facts, key) for key in _SAME},
            "tools": tuple(sorted(facts.tools)),
            "locale": locale_of(facts.env),
            "entrypoint": self.image.entrypoint,
            "cmd": self.image.cmd,
            "volumes": self.image.volumes,
            "healthcheck": self.image.healthcheck,
        }


def _places(look: Look) -> tuple[PlaceFacts, ...]:
    roles = {0: "workdir", 1: "home"}
    found: dict[str, PlaceFacts] = {}
    for at, folder in enumerate(look.folders):
        mount = None if folder.resolved is None else mount_of(folder.resolved, look.mounts)
        found.setdefault(
            folder.path,
            PlaceFacts(
                path=folder.path,
                role=roles.get(at, "other"),
                exists=folder.resolved is not None,
                writable=folder.writable,
                options=_options(mount),
                free_mib=None if folder.free_kib is None else folder.free_kib >> 10,
            ),
        )
    return tuple(found.values())


def _options(mount: Mount | None) -> tuple[str, ...]:
    return () if mount is None else tuple(one for one in _OPTIONS if one in mount.options)


def _project_files(box: Sandbox, facts: ImageFacts) -> tuple[list[str], list[str]]:
    """Name the agents' files in the workdir and in HOME, where that is another folder.

    Raises:
        CouldNotFindOut: the sandbox could not be asked.
    """
    argv = ["sh", "-c", _FIND, "sh", facts.workdir, facts.home, *PROJECT_FILES]
    ended = box.exec(argv, cwd="/", deadline_s=30)
    if ended.exit_code != 0:
        raise CouldNotFindOut(f"cannot look into {facts.workdir}: {ended.stderr.text[-300:]}")
    rows = [line.split(" ", 1) for line in ended.stdout.text.splitlines()]
    project = [name for where, name in rows if where == "workdir"]
    at_home = [name for where, name in rows if where == "home" and facts.home != facts.workdir]
    return project, at_home
