"""Which image on an engine is the one a definition means, and how an archive becomes one."""

from __future__ import annotations

from sandbox.engine.imagebuild.built import BuiltImage, archive_path, find_built
from sandbox.engine.imagebuild.definition import ImageDef, Route
from sandbox.engine.imagebuild.job import RECIPE_LABEL, Job
from sandbox.engine.imagebuild.store import FoundImage, ImageStore
from sandbox.errors import IntegrityError


def routes_of(definition: ImageDef) -> tuple[Route, ...]:
    """List the ways to make an image, in the order in which they are tried."""
    if definition.source != "auto":
        return (definition.source,)
    routes: dict[Route, object] = {"registry": definition.registry, "recipe": definition.recipe}
    return tuple(route for route, table in routes.items() if table is not None)


def find_loaded(store: ImageStore, job: Job) -> tuple[FoundImage, Route] | None:
    """Find the image on the engine by the way it would be made; None when it is not there.

    A recipe's image is known by its ID, from the build's record or ``image.toml``; else, as a
    Dockerfile's always, by its name with the recipe's hash in it and the label that confirms it.
    """
    for route in routes_of(job.definition):
        built = find_built(job) if route == "recipe" else None
        known = built.image_id if built else job.definition.expect.get(job.arch)
        found = store.find(known) if route == "recipe" and known else None
        if found is None:
            named = store.find(job.reference(route))
            found = named if named and _is_ours(named, job, route, built) else None
        if found is not None:
            return found, route
    return None


def load_built(store: ImageStore, job: Job, built: BuiltImage) -> FoundImage:
    """Load the built archive, and see that the engine made of it what it should.

    Raises:
        IntegrityError: the engine has another image than the archive's.
    """
    with job.step("load it into the engine") as step:
        store.load(archive_path(job), step)
    found = store.find(built.image_id) or store.find(built.reference)
    if found is None or (found.image_id != built.image_id and not _same(found, built)):
        raise IntegrityError(
            f"{job.title}: the engine made {found.image_id if found else 'nothing'} "
            f"of the archive of {built.image_id}",
            cure=f"remove it with: docker image rm {built.reference}; then again",
        )
    return found


def ensure_named(store: ImageStore, image: FoundImage, reference: str) -> None:
    """Give the image its name and tag if it has lost it."""
    if reference not in image.tags:
        store.tag(image.image_id, reference)


def _is_ours(found: FoundImage, job: Job, route: Route, built: BuiltImage | None) -> bool:
    labelled = found.labels.get(RECIPE_LABEL) == job.recipe_sha256(route)
    return labelled and (built is None or _same(found, built))


def _same(found: FoundImage, built: BuiltImage) -> bool:
    """Compare by content: engines with containerd's image store have IDs of their own."""
    return found.layers == built.layers and found.labels == built.labels
