"""Runs a framed command through a process of this machine: the shell itself, or ssh."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from platforms import environ
from platforms.job import RefusedError
from platforms.transports.framing import FramedCommand, FramedStream

CHUNK = 1 << 18
TICK_S = 1.0  # between two checks of the clock
END_S = 0.5  # for a process to end by itself once everything has come back; its background work may go on for ever


def run_framed(
    framed: FramedCommand, argv: Sequence[str], content: bytes, env: Mapping[str, str] | None = None
) -> None:
    """Run `argv` with `content` as its input, and pass its output to `framed` until that is finished or late.

    The process has a session of its own, so that a Ctrl-C here does not interrupt it. Raises RefusedError when it
    cannot be started.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environ.copied() if env is None else env,
            start_new_session=True,
        )
    except OSError as error:
        raise RefusedError(f"{argv[0]}: cannot be started: {error.strerror}") from error
    with _ended(process):
        assert process.stdin
        assert process.stdout
        assert process.stderr
        streams = {process.stdout.fileno(): framed.stdout, process.stderr.fileno(): framed.stderr}
        _exchange(framed, process.stdin, memoryview(content), streams)


def _exchange(
    framed: FramedCommand, stdin: IO[bytes], content: memoryview, streams: Mapping[int, FramedStream]
) -> None:
    os.set_blocking(stdin.fileno(), False)
    with selectors.DefaultSelector() as selector:
        for descriptor in streams:
            selector.register(descriptor, selectors.EVENT_READ)
        selector.register(stdin, selectors.EVENT_WRITE)
        open_streams = set(streams)
        while open_streams and not framed.finished and not framed.late:
            for key, _ in selector.select(TICK_S):
                if key.fileobj is stdin:
                    content = content[_write(stdin, content) :]
                    if not content:
                        selector.unregister(stdin)
                        stdin.close()
                elif data := os.read(key.fd, CHUNK):
                    streams[key.fd].feed(data)
                else:
                    selector.unregister(key.fd)
                    open_streams.discard(key.fd)


def _write(stdin: IO[bytes], content: memoryview) -> int:
    """Return how many bytes were written; all of them when the command does not read any more."""
    try:
        return os.write(stdin.fileno(), content[:CHUNK])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(content)


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no process, no open pipe and no zombie behind.

    What the process started has its own time limit.
    """
    try:
        yield
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()
