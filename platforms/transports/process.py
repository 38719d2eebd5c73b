"""A wrapped command carried by a process of this machine: the shell itself, or ssh."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import IO

from platforms.job import RefusedError
from platforms.transports.framing import FramedCommand, FramedStream

CHUNK = 1 << 18
TICK_S = 1.0  # between two looks at the clock
END_S = 0.5  # for a process to end by itself once everything has come back; background work may hold it for ever


def run_framed(
    framed: FramedCommand, argv: Sequence[str], content: bytes, env: Mapping[str, str] | None = None
) -> None:
    """Run `argv`, feed it `content` and give its streams to `framed`, until that is finished, late, or both are closed.

    The process has a session of its own: a Ctrl-C here does not reach it half-way. Raises RefusedError when it cannot
    be started.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
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
        waiting = set(streams)
        while waiting and not framed.finished and not framed.late:
            for key, _ in selector.select(TICK_S):
                if key.fileobj is stdin:
                    content = content[_written(stdin, content) :]
                    if not content:
                        selector.unregister(stdin)
                        stdin.close()
                elif data := os.read(key.fd, CHUNK):
                    streams[key.fd].feed(data)
                else:
                    selector.unregister(key.fd)
                    waiting.discard(key.fd)


def _written(stdin: IO[bytes], content: memoryview) -> int:
    """How many bytes are gone: all of them when nobody reads any more, which is the command's right."""
    try:
        return os.write(stdin.fileno(), content[:CHUNK])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(content)


@contextlib.contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave no process, no open pipe and no zombie. What the process has started has its own limit."""
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
