"""Bodies of HTTP errors in the form of the OpenAI API (API reference, "Error codes")."""

from __future__ import annotations

from sandbox.model.dialect import JsonObject

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}


def openai_error(status: int, message: str, code: str | None = None) -> JsonObject:
    """The error object; type and, when not given, code follow from the HTTP status."""
    otherwise = "server_error" if status >= 500 else "invalid_request_error"
    return {
        "error": {
            "message": message,
            "type": _TYPES.get(status, otherwise),
            "param": None,
            "code": code if code is not None else _CODES.get(status),
        }
    }
