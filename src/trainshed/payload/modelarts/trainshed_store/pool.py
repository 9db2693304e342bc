"""Workers of one copy: as many at once as help, fewer when the store asks for mercy, one first error.

It knows nothing of what the work is. Two lanes: `heavy` work (parts of large files, which hold memory) has
its own small limit and goes first; everything else may use all workers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
START, LEAST, MOST = 16, 2, 64
TICK = 0.2
SETTLE, GAIN, PATIENCE = 0.6, 1.1, 10.0
BACKLOG = 512
FILE_WORTH = 64 * 1024  # a small file costs about as much as this many bytes of a large one


class Later(Generic[T]):
    """A call under way on its own thread."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._value: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], T]) -> None:
        try:
            self._value.append(call())
        except BaseException as error:
            self._error = error

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def get(self) -> T:
        """Its value, or its error."""
        self._thread.join()
        if self._error:
            raise self._error
        return self._value[0]


class Pool:
    """Runs callables on threads. The first exception stops everything and is raised by `finish`."""

    def __init__(self, on_tick: Callable[[], None], heavy: int = 8) -> None:
        self.limit = START
        self._most_heavy = heavy
        self.files = 0
        self.bytes = 0
        self._on_tick = on_tick
        self._light: deque[Callable[[], None]] = deque()
        self._heavy: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []
        self._busy = self._busy_heavy = 0
        self._closed = False
        self.error: BaseException | None = None
        self._ticked = self._judged = time.monotonic()
        self._score = self._rate = 0.0
        self._judge_from = (
            self._judged + SETTLE
        )  # the first moments, with the source still being listed, mean nothing
        self._trying = False
        """Whether the limit was just doubled, to see whether that helps."""
        self._eased_until = 0.0

    def submit(self, task: Callable[[], None], *, heavy: bool = False) -> None:
        """Queue work; waits while the backlog is long. Call from the thread that owns the pool."""
        lane = self._heavy if heavy else self._light
        while True:
            with self._lock:
                if len(lane) < BACKLOG or self.error:
                    lane.append(task)
                    self._work.notify()
                    break
                self._room.wait(TICK)
            self.tick()
        queued = len(self._light) + min(self._most_heavy, len(self._heavy))
        if len(self._threads) < self.limit and len(self._threads) < queued + self._busy:
            self._start()
        self.tick()

    def submit_heavy(self, tasks: list[Callable[[], None]]) -> None:
        """Queue parts of a large file; called by workers, never waits."""
        with self._lock:
            self._heavy.extendleft(reversed(tasks))  # files under way are finished before others begin
            self._work.notify_all()

    def count(self, files: int, size: int) -> None:
        with self._lock:
            self.files += files
            self.bytes += size

    def ease(self) -> None:
        """The store is overloaded or unreachable: halve the load on it for a while."""
        with self._lock:
            now = time.monotonic()
            if now > self._eased_until:
                self.limit = max(LEAST, self.limit // 2)
                self._eased_until = now + 1.0
                self._trying = False

    def finish(self) -> None:
        """Wait for everything queued; raise the first error."""
        while True:
            with self._lock:
                idle = not (self._light or self._heavy or self._busy)
                if idle or (self.error and not self._busy):
                    self._closed = True
                    self._work.notify_all()
                    break
                heavy = min(len(self._heavy), self._most_heavy)
                wanted = min(self.limit, len(self._light) + heavy + self._busy)
            while len(self._threads) < wanted:
                self._start()
            with self._lock:
                if self._light or self._heavy or self._busy:
                    self._room.wait(TICK)
            self.tick()
        for thread in self._threads:
            thread.join()
        if self.error:
            raise self.error

    def abandon(self, error: BaseException) -> None:
        with self._lock:
            self.error = self.error or error

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked < TICK:
            return
        self._ticked = now
        with self._lock:
            if now > self._eased_until and self.limit < START:
                self.limit += 1
            if now - self._judged >= SETTLE:
                self._judge(now)
            self._work.notify_all()
        self._on_tick()

    def _judge(self, now: float) -> None:
        """Double the limit now and then; keep it only if more is done by it: idle threads cost too."""
        score = self.files * FILE_WORTH + self.bytes
        rate = (score - self._score) / (now - self._judged)
        self._judged, self._score = now, score
        if now < self._judge_from or now < self._eased_until or self.limit < START:
            return
        if self._trying and rate < self._rate * GAIN:
            self.limit //= 2
            self._trying = False
            self._judge_from = now + PATIENCE
        else:
            self._trying = self.limit < MOST
            self._rate = rate
            self.limit = min(MOST, self.limit * 2)

    def _start(self) -> None:
        thread = threading.Thread(target=self._loop, args=(len(self._threads),), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _loop(self, index: int) -> None:
        while True:
            with self._lock:
                while True:
                    if self._closed:
                        return
                    heavy = bool(self._heavy) and self._busy_heavy < self._most_heavy
                    if index < self.limit and not self.error and (heavy or self._light):
                        break
                    self._work.wait()
                task = self._heavy.popleft() if heavy else self._light.popleft()
                self._busy += 1
                self._busy_heavy += heavy
                if len(self._light) == BACKLOG // 2:
                    self._room.notify()
            try:
                task()
            except BaseException as error:
                self.abandon(error)
            with self._lock:
                self._busy -= 1
                self._busy_heavy -= heavy
                if not self._busy and not self._light and not self._heavy:
                    self._room.notify()
                elif heavy and self._heavy:
                    self._work.notify()
