"""Several processes, on one machine or on several: connection, assignment of samples, and shutdown.

Every process runs the same command. `jax.distributed` connects them; process 0 also listens for the others on a port of
its own. A process that dies closes its connection, one that freezes stops sending, and the others then end with a
sentence: without it they would wait for minutes in the next sum over processes.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .interrupts import reinstall
from .parts import bounds_of_part

HEARTBEAT = 30.0  # seconds without a sign of life after which a peer counts as frozen
WAIT = 300.0  # seconds for all processes to begin
PORT_TIMEOUT = 60.0  # seconds for all processes to connect
MARGIN = 30  # seconds after which JAX gives up, beyond our own limit
LEFT = 3  # the exit code of a process whose peer has gone
BEAT, BYE = b"+", b"."
WAITING = {"x86_64": ("232", "281"), "aarch64": ("22",)}  # epoll_wait and epoll_pwait among the calls of Linux


def join(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None, wait: float = WAIT
) -> None:
    """Connect this process with its peers; it must precede any other use of JAX.

    Args:
        coordinator: host and port of process 0, as in 10.0.0.1:1234. None finds all three from Slurm, Open MPI or
            Kubernetes, as `jax.distributed.initialize` does.
        processes: their number.
        process: the number of this one, from 0.
        wait: seconds for the others to begin, if the coordinator is given. Then it raises ValueError if process 0 has
            not begun; process 0 itself ends with a sentence, as JAX cannot be asked to give up.
    """
    import jax

    given = (coordinator, processes, process)
    if any(x is None for x in given) and any(x is not None for x in given):
        raise ValueError(
            "expected coordinator, processes and process together, or none of them; got "
            + ", ".join(f"{k}={v!r}" for k, v in zip(("coordinator", "processes", "process"), given, strict=True))
        )
    if coordinator is not None and process is not None and processes is not None:
        host, _, port = coordinator.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"expected the coordinator as HOST:PORT; got {coordinator!r}")
        if not 0 <= process < processes:
            raise ValueError(f"expected a process from 0 to {processes - 1}; got {process}")
        if process > 0:
            _await_coordinator(host, int(port), wait)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # type: ignore[no-untyped-call]  # JAX's
    with contextlib.suppress(AttributeError):  # versions of JAX without this option
        jax.config.update("jax_enable_preemption_service", False)  # type: ignore[no-untyped-call]  # JAX's
    limit: dict[str, Any] = {} if coordinator is None else {"initialization_timeout": math.ceil(wait) + MARGIN}
    others = f"{processes} processes in all" if process == 0 else None
    try:
        with _within(wait, others):
            jax.distributed.initialize(coordinator, processes, process, **limit)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            "expected --coordinator HOST:PORT, --processes N and --process I, or a cluster that JAX finds (Slurm, Open "
            f"MPI, Kubernetes); got {reason}"
        ) from None
    reinstall()  # JAX listens for SIGTERM, in versions that cannot be told not to
    before = _threads()
    if jax.default_backend() == "cpu":  # starts gloo's thread
        time.sleep(0.05)  # until it waits
        _give_way(_threads() - before)


def _await_coordinator(host: str, port: int, wait: float) -> None:
    """Wait until process 0 listens; raise if it does not: JAX would wait for minutes in silence, and then abort."""
    begin, said = time.monotonic(), False
    while True:
        try:
            socket.create_connection((host, port), max(begin + wait - time.monotonic(), 0.1)).close()
            return
        except OSError as error:
            if time.monotonic() - begin >= wait:
                raise ValueError(
                    f"expected process 0 at {host}:{port} within {wait:g} s; got {error.strerror or error}"
                ) from None
        if not said:
            print(f"gsnmf: waiting for process 0 at {host}:{port}", file=sys.stderr, flush=True)
            said = True
        time.sleep(min(0.5, wait))


@contextlib.contextmanager
def _within(wait: float, others: str | None) -> Iterator[None]:
    """End this process with a sentence, in place of JAX's abort, if this takes longer; not if `others` is None."""

    def leave() -> None:
        print(f"gsnmf: error: expected {others} within {wait:g} s; got fewer", file=sys.stderr, flush=True)
        os._exit(LEFT)

    timer = threading.Timer(wait, leave)
    timer.daemon = True
    if others is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _threads() -> set[str]:
    tasks = Path("/proc/self/task")
    return {task.name for task in tasks.iterdir()} if tasks.is_dir() else set()


def _give_way(threads: set[str]) -> None:
    """Let those of these threads that wait for other processes run only on cores that nobody else needs.

    If a peer is early for a sum, gloo's thread spins until this process comes to it, and took a third of a core from
    the sweep that should get there. Only Linux has such a priority and tells what a thread waits for; threads that
    these start later have the usual one.
    """
    waiting = WAITING.get(platform.machine(), ())
    for thread in threads:
        with contextlib.suppress(OSError):  # a thread that has ended, or a system without this information
            call = Path(f"/proc/self/task/{thread}/syscall").read_text().split()[0]
            if call in waiting:
                os.sched_setscheduler(int(thread), os.SCHED_IDLE | os.SCHED_RESET_ON_FORK, os.sched_param(0))


class Peers:
    """A watch over the other processes: this one ends, with a sentence, when one of them dies or freezes.

    Args:
        hint: the end of the sentence, such as where a checkpoint is.
        heartbeat: seconds without a sign of life after which a peer counts as frozen.

    It is a context: at its regular end all processes close their connections first.
    """

    def __init__(self, hint: str = "", heartbeat: float = HEARTBEAT) -> None:
        self.hint, self.heartbeat = hint, heartbeat
        self.heard: dict[socket.socket, float] = {}
        self.ended = threading.Event()

    def __enter__(self) -> Peers:
        """Connect to process 0, or let the others connect, and begin to watch."""
        import jax

        from .inference.processes import all_processes

        if jax.process_count() == 1:
            return self
        if jax.process_index() == 0:
            with socket.create_server(("", 0)) as server:
                all_processes(server.getsockname()[1])
                server.settimeout(PORT_TIMEOUT)
                found = [server.accept()[0] for _ in range(jax.process_count() - 1)]
        else:
            port = all_processes(0)[0]
            found = [socket.create_connection((_coordinator().rpartition(":")[0], port), PORT_TIMEOUT)]
        self.heard = dict.fromkeys(found, time.monotonic())
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Close the connection; if a peer was lost, wait until the watcher reports it and ends the process."""
        import jax

        if not self.heard:
            return
        if error is not None and type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError"):
            time.sleep(self.heartbeat + 2)  # the watch hears of it within milliseconds
            self._leave(f"a sum over processes failed: {str(error).splitlines()[0]}")
        if error is None:
            self.ended.set()
            _send(self.heard, BYE)
            jax.distributed.shutdown()  # type: ignore[no-untyped-call]  # JAX's
        else:
            sys.stderr.flush()

    def _watch(self) -> None:
        selector = selectors.DefaultSelector()
        for one in self.heard:
            selector.register(one, selectors.EVENT_READ)
        beat = time.monotonic()
        while not self.ended.is_set() and selector.get_map():
            for key, _ in selector.select(timeout=0.5):
                peer: Any = key.fileobj
                try:
                    said = peer.recv(64)
                except OSError:
                    said = b""
                if not said:
                    self._leave("another process has ended")
                if said.endswith(BYE):
                    selector.unregister(peer)
                self.heard[peer] = time.monotonic()
            if time.monotonic() - beat > min(1.0, self.heartbeat / 4):
                beat = time.monotonic()
                _send(self.heard, BEAT)
            watched: list[Any] = [key.fileobj for key in selector.get_map().values()]
            silent = max((beat - self.heard[x] for x in watched), default=0.0)
            if silent > self.heartbeat:
                self._leave(f"another process has not answered for {silent:.0f} s")

    def _leave(self, reason: str) -> None:
        """End at once: JAX's own exit would wait for the peer that has gone."""
        if self.ended.is_set():
            return
        print(f"gsnmf: error: {reason}{self.hint}", file=sys.stderr, flush=True)
        os._exit(LEFT)


def _send(peers: Any, word: bytes) -> None:
    for peer in peers:
        with contextlib.suppress(OSError):  # the next read says that it has gone
            peer.sendall(word)


def _coordinator() -> str:
    """Return the address of process 0, given or found by JAX, which has no public name for it."""
    from jax._src import distributed

    return str(distributed.global_state.coordinator_address)


def own_samples(num_samples: int) -> slice:
    """Return the samples of this process: contiguous, and about as many as the others'."""
    import jax

    return slice(*bounds_of_part(num_samples, jax.process_index(), jax.process_count()))
