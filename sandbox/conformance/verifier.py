"""Verifiers: they look at the sandbox and give the reward, not at what the agent says."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping

from sandbox.conformance.scenario import VerifierKind
from sandbox.conformance.witness import Witness
from sandbox.errors import CouldNotFindOut
from sandbox.evidence.cell import VerifierResult

_ASK_DEADLINE_S = 10.0


class Verifier:
    """One scenario's verifier.

    Args:
        kind: how it comes to its reward.
        witness: reads files of the sandbox.
        model_address: host and port where it alone reaches the model, and the model's base path.
    """

    def __init__(
        self,
        kind: VerifierKind,
        witness: Witness,
        *,
        model_address: tuple[str, int, str] | None,
    ) -> None:
        self._kind = kind
        self._witness = witness
        self._model_address = model_address

    def grade(self, wanted: Mapping[str, str]) -> VerifierResult:
        """Return the reward.

        Raises:
            CouldNotFindOut: the verifier itself broke.
        """
        if self._kind == "broken":
            raise CouldNotFindOut("the verifier ended with exit status 3 and gave no reward")
        found = self._witness.grade(wanted)
        if self._kind == "files":
            return found
        answer_id, opinion = self._ask(f"Do these files solve the task? {found.detail}")
        return VerifierResult(
            reward=found.reward * opinion,
            detail=f"{found.detail}; the judge says {opinion}",
            model_calls=(answer_id,),
        )

    def _ask(self, question: str) -> tuple[str, float]:
        """Ask the model; return the id of its answer's exchange and the number that it says."""
        assert self._model_address is not None
        host, port, base = self._model_address
        body = {"model": "judge", "messages": [{"role": "user", "content": question}]}
        connection = http.client.HTTPConnection(host, port, timeout=_ASK_DEADLINE_S)
        try:
            connection.request(
                "POST",
                f"{base}/chat/completions",
                json.dumps(body),
                {"content-type": "application/json"},
            )
            answer = json.loads(connection.getresponse().read())
            said = answer["choices"][0]["message"]["content"]
            return f"mc{answer['id'].removeprefix('chatcmpl')}", float(said)
        except (OSError, ValueError, LookupError, http.client.HTTPException) as error:
            raise CouldNotFindOut(f"the judge gave no reward: {error}") from error
        finally:
            connection.close()
