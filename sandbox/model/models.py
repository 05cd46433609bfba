"""The models list, in the forms of the OpenAI and the Anthropic API.

Sources: OpenAI API reference, "Models"; Anthropic API reference, "Models".
"""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.model.dialect import JsonObject


def openai_models(names: Sequence[str]) -> dict[str, JsonObject]:
    """Bodies by the path after ``/v1``; the base itself is answered with the list."""
    models: dict[str, JsonObject] = {
        name: {"id": name, "object": "model", "created": 0, "owned_by": "scripted"}
        for name in names
    }
    return _by_path({"object": "list", "data": list(models.values())}, models)


def anthropic_models(names: Sequence[str]) -> dict[str, JsonObject]:
    """Bodies by the path after ``/v1``; the base itself is answered with the list."""
    models: dict[str, JsonObject] = {
        name: {
            "id": name,
            "type": "model",
            "display_name": name,
            "created_at": "1970-01-01T00:00:00Z",
            "lifecycle": "active",
        }
        for name in names
    }
    page: JsonObject = {
        "data": list(models.values()),
        "first_id": names[0] if names else None,
        "last_id": names[-1] if names else None,
        "has_more": False,
    }
    return _by_path(page, models)


def _by_path(listed: JsonObject, models: dict[str, JsonObject]) -> dict[str, JsonObject]:
    return {
        "": listed,
        "/models": listed,
        **{f"/models/{name}": model for name, model in models.items()},
    }
