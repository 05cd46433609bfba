"""An engine by TCP with TLS: what the docker CLI's variables and files say, and what is wrong.

As with the docker CLI: ``DOCKER_TLS_VERIFY`` that is not empty asks for TLS with an engine whose
certificate is looked at, ``DOCKER_TLS`` for TLS without that look; ``ca.pem``, ``cert.pem`` and
``key.pem`` lie in ``DOCKER_CERT_PATH``, else in ``DOCKER_CONFIG``, else in ``~/.docker``. They
count for a ``DOCKER_HOST`` by TCP; a docker context brings files of its own.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import docker.utils
from docker.tls import TLSConfig

from sandbox.errors import PrerequisiteMissing, SandboxError, UsageError

DEFAULT_PORT = 2376
HINT = "an engine with TLS wants DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH"
_FOLDER = "the folder of DOCKER_CERT_PATH"
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_VERIFY = {  # X509_V_ERR_* of openssl/x509_vfy.h
    9: (
        "is not valid yet",
        "set the clock of this machine, or give the engine another certificate",
    ),
    10: ("has expired", "give the engine a certificate that is valid now (dockerd --tlscert)"),
    62: ("is for another name", "use a name of the certificate in DOCKER_HOST"),
    64: ("is for another address", "use an address of the certificate in DOCKER_HOST"),
}


class Tls(TLSConfig):
    """What the SDK is told about TLS with its engine, which no variable of others changes.

    Else ``REQUESTS_CA_BUNDLE`` would stand in for the engine's authority, and a proxy be asked for
    it which the connections of execs know nothing of.
    """

    @classmethod
    def of(cls, config: TLSConfig) -> Self:
        """Give the same as ``config``."""
        return cls(client_cert=config.cert, ca_cert=config.ca_cert, verify=config.verify)

    def configure_client(self, client: Any) -> None:
        """Set a session of ``requests`` up."""
        super().configure_client(client)
        client.trust_env = False


def settings(place: str, environ: Mapping[str, str]) -> Tls | None:
    """Read what the variables say about TLS with the engine at ``place``; None: none of it.

    Raises:
        UsageError: a file is missing.
    """
    verify = bool(environ.get("DOCKER_TLS_VERIFY"))
    if not is_tcp(place) or not (verify or environ.get("DOCKER_TLS")):
        return None
    folder = Path(
        environ.get("DOCKER_CERT_PATH") or environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    )
    authority, certificate, key = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    if verify and not authority.is_file():
        raise UsageError(
            f"there is no {authority}, by which the engine at {place} would be known",
            cure="put the certificate of the authority that signed the engine's there, "
            "or set DOCKER_CERT_PATH",
        )
    pair = (certificate, key)
    missing = [str(one) for one in pair if not one.is_file()]
    if len(missing) == 1:
        raise UsageError(
            f"there is no {missing[0]}: a client's certificate and its key belong together",
            cure="put both cert.pem and key.pem there, or neither where the engine wants none",
        )
    return Tls(
        client_cert=None if missing else (str(certificate), str(key)),
        ca_cert=str(authority) if verify else None,
        verify=verify,
    )


def is_tcp(place: str) -> bool:
    """Whether an address as in DOCKER_HOST leads over TCP."""
    return str(docker.utils.parse_host(place)).startswith(("http://", "https://"))


def context(*, verify: bool | str | None, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    """Make what a handshake needs.

    Args:
        verify: the file of the authority to be signed by, True for this machine's, else no look.
        certificate: the client's certificate and its key, as files.

    Raises:
        UsageError: a file is no certificate, or no key to it.
    """
    doing = str(verify)
    try:
        made = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
        if not verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            doing = " with ".join(certificate)
            made.load_cert_chain(*certificate, password=_refuse_password)
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"{doing} cannot be used for TLS: {error}",
            cure=f"look at the files in {_FOLDER}: certificates and the key in PEM, without a "
            "password, the key the certificate's own",
        ) from error
    return made


def _refuse_password() -> str:
    raise UsageError(
        "the client's key for TLS with the engine wants a password, and nobody is asked for one",
        cure="use a key without a password: openssl pkey -in key.pem -out key.pem",
    )


def context_of(api: Any) -> ssl.SSLContext:
    """Make what a handshake needs from what the SDK's client was told; see ``context``."""
    return context(verify=api.verify, certificate=api.cert)


def explain(error: OSError, place: str, *, has_certificate: bool) -> SandboxError:
    """Say what is wrong where a handshake, or the first words after it, failed.

    Args:
        error: what the handshake, or the first reading after it, raised.
        place: the engine's address.
        has_certificate: a client's certificate was shown.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        what, cure = _VERIFY.get(
            error.verify_code,
            (
                "is not signed by the authority in ca.pem",
                f"put the engine's own authority as ca.pem into {_FOLDER}",
            ),
        )
        return UsageError(
            f"the certificate of the engine at {place} {what}: {error.verify_message}", cure=cure
        )
    reason = getattr(error, "reason", None) or ""
    if "ALERT" in reason:
        shown = "the client's certificate" if has_certificate else "a client without a certificate"
        own = "that the engine's authority signed and that is valid now, with its key"
        return UsageError(
            f"the engine at {place} refuses {shown}: {_words(reason)}",
            cure=f"put a certificate {own} as cert.pem and key.pem into {_FOLDER}",
        )
    if reason in _NOT_TLS:
        return UsageError(
            f"what answers at {place} does not speak TLS: {_words(reason)}",
            cure="unset DOCKER_TLS_VERIFY and DOCKER_TLS, or use the engine's port for TLS "
            f"(mostly {DEFAULT_PORT})",
        )
    return PrerequisiteMissing(
        f"no Docker engine answers by TLS at {place}: {error}",
        cure="see that it can be reached from here and that dockerd listens there",
    )


def _words(reason: str) -> str:
    return reason.lower().replace("_", " ")


def is_tls(api: Any) -> bool:
    """Whether the SDK's client talks TLS with its engine."""
    return str(api.base_url).startswith("https://")
