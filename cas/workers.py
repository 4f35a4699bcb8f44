"""Worker processes for what one interpreter cannot do on all cores.

A worker is a fresh interpreter, never a fork: a fork copies locks that other threads hold. It gets
messages over a pipe, answers each one in order, and dies with whoever started it, however that
died. Messages are what `cas.codec` can encode.
"""

from __future__ import annotations

import _thread
import collections
import importlib
import os
import select
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self

from cas import codec, errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    Answer = Callable[[Any], Any]

_REPLY: Final = 0
_ERROR: Final = 1
_FATAL: Final = 2
_MESSAGE: Final = 3
_END: Final = 4

_HEADER: Final = 5  # length of the body, big-endian, and the kind
_PIPE: Final = 1 << 20
_MAX_FRAME: Final = (1 << 32) - 1
_SET_PIPE_SIZE: Final = 1031  # F_SETPIPE_SZ, Linux
_PATIENCE: Final = 10.0
"""Seconds that a worker has to end after it was asked to."""


def worker_count(hint: int | None = None) -> int:
    """Return how many processes to use: `hint`, or as many as there are cores for this one."""
    if hint is not None:
        return max(1, hint)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Worker:
    """One worker process, as seen by whoever started it; for one thread.

    Replies come in the order of the messages, one for each, and any number may be on the way. A
    context manager: left by an error it kills the worker, else it closes it.

    Args:
        target: "package.module:factory". In the worker the factory gets `init` and returns a
            function from a message to its reply. CasError and OSError that either raises come back
            as what they are; anything else is a bug, ends the worker, and is told on stderr.
        init: The factory's argument.

    Raises:
        EnvironmentFailure: No process can be started.
    """

    def __init__(self, target: str, init: Any = None) -> None:
        """Start the process; it gets ready while the caller goes on."""
        import subprocess  # late: start-up time, of the worker too

        self.target = target
        self._received = bytearray()
        self._frames: collections.deque[tuple[int, bytes]] = collections.deque()
        self._ended = False
        # Without site, which takes half of an interpreter's start: paths are handed down.
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        path = [os.path.abspath(entry) for entry in sys.path]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join([*path, here]))
        command = "from cas.workers import main; main()"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-P", "-c", command, target],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env=environment,
                process_group=0,  # Ctrl-C is for the parent, which then ends its workers
            )
        except OSError as error:
            raise errors.environment_failure(error, f"starting worker {target}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to = self._process.stdin.fileno()
        self._from = self._process.stdout.fileno()
        for fd in (self._to, self._from):
            os.set_blocking(fd, False)
            _widen(fd)
        try:
            self.send(init)
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def ready(self) -> bool:
        """Whether `receive` returns or raises at once."""
        return bool(self._frames) or self._ended

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the worker has written."""
        return self._from

    def send(self, message: Any) -> None:
        """Give the worker a message. Replies that come meanwhile are kept, so nothing blocks.

        Raises:
            RefusedError: The message cannot be encoded.
            EnvironmentFailure: The worker is gone.
        """
        body = codec.encode_plain(message)
        if len(body) > _MAX_FRAME:
            raise errors.RefusedError(f"a message of {len(body)} bytes is too long")
        self._send(_MESSAGE, body)

    def receive(self) -> Any:
        """Wait for the next reply and return it.

        Raises:
            CasError, OSError: What the worker raised for this message.
            EnvironmentFailure: The worker is gone.
        """
        while not self._frames:
            if self._ended:
                self._fail_broken()
            _poll([self], None)
        kind, body = self._frames.popleft()
        if kind == _FATAL:
            self._frames.appendleft((kind, body))  # so it is for whatever comes next
        # The bytes come from our own process; their size was declared and met.
        value = codec.decode_trusted(body, max_bytes=_MAX_FRAME)
        if kind == _REPLY:
            return value
        raise _error_of(value)

    def close(self) -> None:
        """Let the worker end after what it was sent; may be called again.

        Replies that nobody received are dropped. A worker that does not end in time is killed.
        """
        if self._process.stdin is None or self._process.stdin.closed:
            return
        try:
            self._send(_END, b"")
            self._drain()
        except errors.CasError:
            pass  # it is gone already, which is what was wanted
        self.kill()

    def kill(self) -> None:
        """End the worker at once; may be called again."""
        process = self._process
        if process.poll() is None:
            process.kill()
        process.wait()
        self._ended = True
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close, or kill after an error."""
        if kind is None:
            self.close()
        else:
            self.kill()

    def _send(self, kind: int, body: bytes) -> None:
        if self._ended:
            self._fail_broken()
        rest = memoryview(len(body).to_bytes(4, "big") + bytes([kind]) + body)
        poller = select.poll()
        poller.register(self._to, select.POLLOUT)
        poller.register(self._from, select.POLLIN)
        while rest:
            ready = dict(poller.poll())
            if self._from in ready:
                self.pump()
                if self._ended:
                    self._fail_broken()
            if self._to in ready:
                try:
                    rest = rest[os.write(self._to, rest) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    self._drain()
                    self._fail_broken()

    def pump(self) -> None:
        """Read what the worker has written, without waiting."""
        try:
            data = os.read(self._from, _PIPE)
        except BlockingIOError:
            return
        if not data:
            self._ended = True
            return
        buffer = self._received
        buffer += data
        at = 0
        while len(buffer) - at >= _HEADER:
            stop = at + _HEADER + int.from_bytes(buffer[at : at + 4], "big")
            if stop > len(buffer):
                break
            self._frames.append((buffer[at + 4], bytes(buffer[at + _HEADER : stop])))
            at = stop
        del buffer[:at]

    def _drain(self) -> None:
        """Read until the worker has ended, or has been silent for too long."""
        while not self._ended:
            if not _poll([self], _PATIENCE):
                return

    def _reap(self) -> int:
        """Return the exit status of a process that has closed its pipe."""
        import subprocess  # late: start-up time, of the worker too

        try:
            return self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def _fail_broken(self) -> NoReturn:
        """Raise what ended the worker."""
        if self._frames and self._frames[-1][0] == _FATAL:
            raise _error_of(codec.decode_trusted(self._frames[-1][1], max_bytes=_MAX_FRAME))
        code = self._reap()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        raise errors.EnvironmentFailure(
            f"worker {self.target} (process {self.pid}) {how} before its work was done; try again",
            target=self.target,
            pid=self.pid,
            status=code,
        )


def wait(workers: Iterable[Worker], timeout: float | None = None) -> list[Worker]:
    """Wait until `receive` would not wait for some of the workers; return those.

    Args:
        workers: Whom to wait for.
        timeout: Seconds; None waits without end. After it the list is empty.
    """
    waited = list(workers)
    while True:
        ready = [worker for worker in waited if worker.ready]
        if ready or not _poll(waited, timeout):
            return ready


def _poll(workers: list[Worker], timeout: float | None) -> bool:
    """Read from whichever worker writes first; False if none did in time."""
    poller = select.poll()
    by_fd = {}
    for worker in workers:
        poller.register(worker, select.POLLIN)
        by_fd[worker.fileno()] = worker
    ready = poller.poll(None if timeout is None else timeout * 1000)
    for fd, _ in ready:
        by_fd[fd].pump()
    return bool(ready)


def _widen(fd: int) -> None:
    """Make a pipe hold more, so that both sides run on while the other is busy."""
    if sys.platform == "linux":
        import fcntl

        try:
            fcntl.fcntl(fd, _SET_PIPE_SIZE, _PIPE)
        except OSError:
            pass  # over the user's limit: it works as it is


# --- errors on the wire ------------------------------------------------------------------------


def _fields_of(error: Exception) -> list[Any]:
    """Return what `_error_of` makes the error of again."""
    kind = type(error)
    if isinstance(error, errors.CasError):
        return [kind.__module__, kind.__qualname__, error.message, _plain(error.facts)]
    if isinstance(error, OSError):
        return ["", "OSError", error.strerror or str(error), [error.errno, _plain(error.filename)]]
    return ["", kind.__name__, str(error), None]


def _plain(value: Any) -> Any:
    """Return a value that can be encoded: itself, or how it prints."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    try:
        codec.encode(value)
    except errors.RefusedError:
        return repr(value)
    return value


def _error_of(value: Any) -> Exception:
    module, name, message, facts = value
    if not module:
        if name == "OSError":
            return OSError(facts[0], message, facts[1])
        return errors.EnvironmentFailure(f"worker ran into {name}: {message}")
    kind = getattr(importlib.import_module(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.CasError)):
        kind = errors.CasError
    return kind(message, **facts)


# --- inside the worker -------------------------------------------------------------------------


def main() -> None:
    """Serve one parent. The only argument is the target."""
    source, sink = _take_pipes()
    _thread.start_new_thread(_die_with_parent, (source,))
    module, _, name = sys.argv[1].partition(":")
    kind, body = _read_frame(source)
    try:
        factory = getattr(importlib.import_module(module), name)
        answer: Answer = factory(codec.decode_trusted(body, max_bytes=_MAX_FRAME))
    except (errors.CasError, OSError, MemoryError) as error:
        _write_frame(sink, _FATAL, codec.encode_plain(_fields_of(error)))
        return
    while True:
        kind, body = _read_frame(source)
        if kind == _END:
            return
        try:
            reply = codec.encode_plain(answer(codec.decode_trusted(body, max_bytes=_MAX_FRAME)))
        except (errors.CasError, OSError, MemoryError) as error:
            _write_frame(sink, _ERROR, codec.encode_plain(_fields_of(error)))
        else:
            _write_frame(sink, _REPLY, reply)


def _take_pipes() -> tuple[int, int]:
    """Move the pipes away from where a stray print or input would reach them."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return source, sink


def _die_with_parent(source: int) -> None:
    """End this process when the other end of its pipe is gone, whatever it is doing.

    A parent that lives keeps its end open until the worker has ended. PR_SET_PDEATHSIG would
    kill the worker already when the thread that started it ends.
    """
    poller = select.poll()
    poller.register(source, 0)  # a hang-up is told without being asked for
    poller.poll()
    os._exit(1)


def _read_frame(fd: int) -> tuple[int, bytes]:
    header = _read(fd, _HEADER)
    return header[4], _read(fd, int.from_bytes(header[:4], "big"))


def _read(fd: int, size: int) -> bytes:
    parts = []
    while size:
        data = os.read(fd, min(size, _PIPE))
        if not data:
            os._exit(1)  # the parent is gone
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _write_frame(fd: int, kind: int, body: bytes) -> None:
    rest = memoryview(len(body).to_bytes(4, "big") + bytes([kind]) + body)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except BrokenPipeError:
        os._exit(1)  # the parent is gone
