"""Running a worker's command under a claim."""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .output import visible
from .session import Session

if TYPE_CHECKING:
    import cas

_PATIENCE = 10.0
"""Seconds that a command has to end after it was asked to."""
_NOT_FOUND = 127
"""Exit code for a command that cannot be started, as a shell has it."""


class Work:
    """One command under one claim.

    Args:
        session: The session.
        claim: The claim; it is over when the command has run.
        lease: Seconds that it is renewed for, every third of them.
    """

    def __init__(self, session: Session, claim: "cas.Claim", lease: float) -> None:
        """Start nothing yet."""
        self._session = session
        self._claim = claim
        self._lease = lease
        self._learning = session.store().learning
        self._process: subprocess.Popen[bytes] | None = None
        self._told = 0

    def run(self, words: list[str]) -> int:
        """Run the command and return its exit code; 128 + the signal if one ended it.

        Raises:
            LeaseLostError: Another took the candidate over; the command was ended.
        """
        try:
            with self._told_to_end():
                return self._run(words)
        finally:
            self._give_back()

    def _run(self, words: list[str]) -> int:
        claim = self._claim
        environment = {
            **os.environ,
            "CAS_STORE": str(self._session.store().root),
            "CAS_CANDIDATE_ID": claim.candidate.candidate_id,
            "CAS_CLAIM_TOKEN": str(claim.token),
            "CAS_CLAIM_OWNER": claim.owner,
        }
        try:
            self._process = process = subprocess.Popen(
                words, bufsize=0, stdin=subprocess.PIPE, env=environment, process_group=0
            )
        except OSError as error:
            self._session.note(f"{visible(words[0])} cannot be run: {error.strerror}")
            return _NOT_FOUND
        try:
            if self._told:
                raise _ending(self._told)
            _feed(process, json.dumps(claim.candidate.to_dict()).encode())
            code = self._wait(process)
        finally:
            _end(process)
        return code if code >= 0 else 128 - code

    def _wait(self, process: "subprocess.Popen[bytes]") -> int:
        while True:
            try:
                return process.wait(self._lease / 3)
            except subprocess.TimeoutExpired:
                from cas import BusyError, EnvironmentFailure, LeaseLostError

                claim = self._claim
                try:
                    self._learning.renew(claim.candidate.candidate_id, claim.token, self._lease)
                except LeaseLostError:
                    if process.poll() is not None:
                        return process.returncode  # it moved the candidate on and ended
                    if self._is_ours():
                        continue
                    raise
                except (EnvironmentFailure, BusyError) as error:
                    # Until somebody takes the candidate over, the claim can still be renewed.
                    self._session.note(f"the claim could not be renewed: {visible(str(error))}")

    def _is_ours(self) -> bool:
        """Say whether the command itself ended the claim, by moving the candidate on."""
        candidate_id, token = self._claim.candidate.candidate_id, self._claim.token
        return any(
            event.token == token and event.to_status not in (None, "synthesizing")
            for event in self._learning.audit_events(candidate_id)
        )

    @contextlib.contextmanager
    def _told_to_end(self) -> Iterator[None]:
        """Have signals end the command, and not before it is known which that is."""

        def end(number: int, _frame: Any) -> None:
            self._told = number
            if self._process is not None:
                raise _ending(number)

        before = {
            number: signal.signal(number, end)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN  # as under nohup
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _give_back(self) -> None:
        from cas import ConflictError

        with contextlib.suppress(ConflictError):  # it is over already: moved on, or taken over
            claim = self._claim
            self._learning.release(claim.candidate.candidate_id, claim.token)
            self._session.note(f"{visible(claim.candidate.candidate_id)} was released")


def _feed(process: "subprocess.Popen[bytes]", content: bytes) -> None:
    """Give the command its input beside it: it need not read that, nor at once."""
    pipe = process.stdin
    assert pipe is not None

    def write() -> None:
        left = memoryview(content)
        with contextlib.suppress(BrokenPipeError), pipe:
            while left:
                left = left[pipe.write(left) :]

    threading.Thread(target=write, daemon=True).start()


def _ending(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the command with all that it started, if it still runs."""
    if process.poll() is not None:
        return
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_PATIENCE)
    except (subprocess.TimeoutExpired, ProcessLookupError):
        pass
    finally:  # also if this one is told to end a second time
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
