"""Bodies of HTTP errors in the forms of the OpenAI and the Anthropic API.

Sources: OpenAI API reference, "Error codes"; Anthropic API reference, "Errors".
"""

from __future__ import annotations

from sandbox.model.dialect import JsonObject

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_CODES = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


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


def anthropic_error(
    status: int, message: str, code: str | None = None, *, request_id: str = ""
) -> JsonObject:
    """The error object. The API has types in the place of codes.

    ``code`` is the type when it is one of the API's; otherwise the type follows from the HTTP
    status. Without a ``request_id`` the body names none.
    """
    otherwise = "api_error" if status >= 500 else "invalid_request_error"
    known = code is not None and code in _ANTHROPIC_TYPES.values()
    kind = code if known else _ANTHROPIC_TYPES.get(status, otherwise)
    named: JsonObject = {"request_id": request_id} if request_id else {}
    return {"type": "error", "error": {"type": kind, "message": message}, **named}
