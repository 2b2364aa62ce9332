"""Run the application on uvicorn: sockets, signals, the end.

There is one listener, of 127.0.0.1, or a second one if another address is asked for: the status page, the metrics and
the management are only on that of 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from .application import MIN_TOKEN_CHARACTERS, Application
from .limits import RequestLimits
from .logs import EventLog
from .metrics import ServerMetrics
from .repository import Loader, ModelFile, Repository

if TYPE_CHECKING:
    from ..generation import TextGenerator

LOCAL = "127.0.0.1"
BACKLOG = 2048
THREAD_SWITCH_SECONDS = 0.0005
"""A thread with results waits no longer for the event loop: the default is ten times that."""


class InferenceServer:
    """A server for some models. `run` serves in this thread until a signal; `with` serves in another one."""

    def __init__(
        self,
        files: Sequence[ModelFile],
        load: Loader,
        *,
        host: str = LOCAL,
        port: int = 8000,
        local_port: int = 0,
        token: str | None = None,
        watch: float | None = None,
        limits: RequestLimits = RequestLimits(),
        log: EventLog | None = None,
        generators: Mapping[str, TextGenerator] = {},
    ) -> None:
        if token is not None and len(token) < MIN_TOKEN_CHARACTERS:
            raise ArgumentError(f"the token of the management has at least {MIN_TOKEN_CHARACTERS} characters")
        self.log = log or EventLog(None)
        self.metrics = ServerMetrics()
        self.repository = Repository(files, load, self.metrics, self.log)
        self.limits = limits
        self.watch = watch
        self.generators = generators
        """Language models by name: each answers `generate` and `generate_stream`."""
        self.sockets = [listening(host, port)]
        self.host, self.port = self.sockets[0].getsockname()[:2]
        if self.host != LOCAL:
            self.sockets.append(listening(LOCAL, local_port))
        self.local_port: int = self.sockets[-1].getsockname()[1]
        self.application = Application(
            self.repository, self.metrics, self.log, limits, local_port=self.local_port, token=token
        )
        self._stop: Callable[[], None] = lambda: None
        self._thread: Thread | None = None
        self._problem: BaseException | None = None

    @property
    def address(self) -> str:
        """Return the URL at which requests are answered."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def load(self) -> None:
        """Load the models; until then connections wait."""
        try:
            self.repository.load_all()
        except BaseException:
            for listener in self.sockets:
                listener.close()
            raise

    def run(self, ready: Event | None = None) -> None:
        """Serve until SIGTERM, SIGINT or `stop`; requests that are there are answered first."""
        import uvicorn

        config = uvicorn.Config(
            self._whole_application(),
            http=_protocol(self.limits),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=int(self.limits.idle_seconds),
            timeout_graceful_shutdown=int(self.limits.drain_seconds) + 1,
        )
        server = uvicorn.Server(config)
        self._stop = lambda: setattr(server, "should_exit", True)

        async def serve() -> None:
            tasks = [asyncio.create_task(self._watch())] if self.watch else []
            tasks.append(asyncio.create_task(_announce(server, ready, self)))
            try:
                await server.serve(sockets=self.sockets)
            finally:
                for task in tasks:
                    task.cancel()

        factory = config.get_loop_factory()
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(serve())

    def _whole_application(self) -> Any:
        """Return what answers: text is generated in front of the application."""
        if not self.generators:
            return self.application
        from ..generation.application import TextApplication

        return TextApplication(self.generators, self.application)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.watch or 0)
            await self.repository.reload_changed()

    def stop(self) -> None:
        """End as after SIGTERM."""
        self._stop()

    def __enter__(self) -> InferenceServer:
        self.load()
        ready = Event()
        self._thread = Thread(target=self._run_in_thread, args=(ready,), name="tilegrad-serve", daemon=True)
        self._thread.start()
        ready.wait()
        if self._problem is not None:
            raise self._problem
        return self

    def _run_in_thread(self, ready: Event) -> None:
        try:
            self.run(ready)
        except BaseException as problem:
            self._problem = problem
        finally:
            ready.set()

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()


async def _announce(server: object, ready: Event | None, served: InferenceServer) -> None:
    """Say that requests are answered from now on."""
    while not getattr(server, "started", False):
        await asyncio.sleep(0.001)
    local = f"http://{LOCAL}:{served.local_port}"
    served.log.event("serving", address=served.address, status=local, models=len(served.repository.models()))
    if ready is not None:
        ready.set()


def _protocol(limits: RequestLimits) -> type[asyncio.Protocol]:
    from .connection_guard import guarded

    return guarded(limits)


def listening(host: str, port: int) -> socket.socket:
    """Make a socket that listens; the port 0 is a free one."""
    if not 0 <= port < 1 << 16:
        raise ArgumentError(f"port {port}: a port is a number up to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except OSError as problem:
        made.close()
        raise ArgumentError(f"{host}:{port} cannot be had: {problem.strerror or problem}") from None
    made.setblocking(False)
    return made


def run_until_signal(server: InferenceServer) -> int:
    """Load and serve; return the exit status after a signal and the end of the requests that were there."""
    import sys

    server.load()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn ends gracefully, and raises its signal again after that
    server.run()
    server.log.close()
    return 0
