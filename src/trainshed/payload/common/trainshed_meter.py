"""The meter a training script uses to say what it did and when.

One file, standard library only, Python 3.7 or later, because it is imported
inside framework environments that have nothing of Trainshed installed. It
knows neither frameworks nor how its numbers are judged: it records marks on
two clocks (monotonic for durations, wall for alignment) as JSON lines in
`$TRAINSHED_METRICS_DIR/meter-rank-<r>.jsonl`.

    from trainshed_meter import Meter
    meter = Meter()
    meter.seed(17)
    meter.dataset("digits", "sha256:…", train_samples=1437, eval_samples=360)
    meter.start()
    for epoch in range(epochs):
        with meter.epoch():
            for batch in data:
                train(batch)
                meter.step(samples=len(batch))
        with meter.evaluation():
            accuracy = evaluate()
        meter.quality("accuracy", accuracy)
    meter.stop()

`step` only appends to a list; a thread turns what has gathered into one line
every quarter of a second, so a step pays well under two microseconds and a
SIGKILL loses at most the last half second. Without TRAINSHED_METRICS_DIR every
call is accepted and nothing is written: the same script runs anywhere.
"""

# ruff: noqa: PTH103, PTH118, UP031
# mypy: ignore-errors
# (must run on Python 3.7)
import atexit
import json
import math
import os
import socket
import threading
import time
from collections import deque
from contextlib import contextmanager

FORMAT = 1
FLUSH_SECONDS = 0.25
# A script in a tight loop must not grow memory without end between flushes.
MAX_BUFFERED_STEPS = 100_000


class Meter:
    """Records marks of one rank. Safe to call from several threads; ignores forked children."""

    def __init__(self, folder=None, rank=None, world=None):
        env = os.environ
        self.folder = folder or env.get("TRAINSHED_METRICS_DIR", "")
        ranks = [
            env.get(n) for n in ("TRAINSHED_RANK", "HOROVOD_RANK", "RANK_ID", "PADDLE_TRAINER_ID", "RANK")
        ]
        worlds = [env.get(n) for n in ("TRAINSHED_WORLD_SIZE", "HOROVOD_SIZE", "RANK_SIZE", "WORLD_SIZE")]
        self.rank = int(_first(rank, *ranks, "0"))
        self.world = int(_first(world, *worlds, "1"))
        # MindSpore's scheduler runs the same script but trains nothing: it is not a rank.
        self.enabled = bool(self.folder) and env.get("MS_ROLE") != "MS_SCHED"
        # Deques, because append and popleft stay whole when the flushing thread runs in between.
        self._steps = deque()
        self._records = deque()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._pid = os.getpid()
        self._file = None
        self._seq = 0
        self._written_steps = 0
        self._written_samples = 0
        self._epoch = 0
        self._closed = False
        self._dropped = 0
        if self.enabled:
            self._open()

    # ---- marks ---------------------------------------------------------

    def start(self, **settings):
        """Training starts now: the mark that time to target counts from."""
        for key, value in sorted(settings.items()):
            self.setting(key, value)
        self._mark("start")

    def stop(self, status="success"):
        """Training has ended; `status` is "success" or "aborted"."""
        self._mark("stop", status=status)
        self.close()

    def step(self, samples, steps=1):
        """`steps` optimisation steps have just finished on this rank, with `samples` samples in all."""
        if not self.enabled:
            return
        buffer = self._steps
        buffer.append((steps, samples, time.monotonic()))
        if len(buffer) >= MAX_BUFFERED_STEPS:
            self.flush()

    @contextmanager
    def epoch(self, number=None):
        """One pass over the training data; numbered from 1 when no number is given."""
        self._epoch = self._epoch + 1 if number is None else number
        self._mark("epoch_start", epoch=self._epoch)
        yield self._epoch
        self._mark("epoch_stop", epoch=self._epoch)

    @contextmanager
    def evaluation(self):
        """Evaluation: on the clock for time to target, off the clock for throughput."""
        self._mark("eval_start", epoch=self._epoch)
        try:
            yield
        finally:
            self._mark("eval_stop", epoch=self._epoch)

    @contextmanager
    def phase(self, name):
        """A named stretch of time such as "prepare", "dataload" or "checkpoint"."""
        self._mark("phase_start", name=str(name))
        try:
            yield
        finally:
            self._mark("phase_stop", name=str(name))

    def quality(self, name, value, epoch=None):
        """A quality measured by evaluation, for example ("accuracy", 0.76)."""
        self._mark("quality", name=str(name), epoch=self._epoch if epoch is None else epoch, **_number(value))

    def loss(self, value):
        """A training loss; a loss that is not finite fails the result."""
        self._mark("loss", **_number(value))

    def seed(self, value):
        self._mark("seed", value=int(value))

    def dataset(self, name, checksum, train_samples=None, eval_samples=None):
        """Which data were read: `checksum` is "sha256:<hex>", see `dataset_checksum`."""
        self._mark(
            "dataset",
            name=str(name),
            checksum=str(checksum),
            train_samples=train_samples,
            eval_samples=eval_samples,
        )

    def setting(self, key, value):
        """A hyperparameter worth keeping, such as ("global_batch_size", 256)."""
        self._mark("setting", key=str(key), value=value)

    # ---- writing -------------------------------------------------------

    def flush(self):
        """Write what has gathered. Called by the thread, at exit and when a buffer is full."""
        if self._file is None or os.getpid() != self._pid:
            return
        with self._lock:
            steps = _drain(self._steps)
            records = _drain(self._records)
            if not steps and not records:
                return
            lines = []
            # Marks and steps keep the order in which they happened.
            position = 0
            for record in records:
                upto = position
                while upto < len(steps) and steps[upto][2] <= record["mono"]:
                    upto += 1
                if upto > position:
                    lines.append(self._steps_line(steps[position:upto]))
                    position = upto
                lines.append(self._line(record))
            if position < len(steps):
                lines.append(self._steps_line(steps[position:]))
            try:
                # One write call on an append-only descriptor: a kill leaves whole lines.
                os.write(self._file, "".join(lines).encode("utf-8"))
            except OSError:
                # A full disk must not end the training; the gap shows in `seq`.
                self._dropped += len(lines)

    def close(self):
        """Write the closing line; later marks are ignored. Runs by itself at interpreter exit."""
        if self._closed or self._file is None or os.getpid() != self._pid:
            return
        self.flush()
        with self._lock:
            self._closed = True
        self._records.append(
            self._record(
                "end", steps=self._written_steps, samples=self._written_samples, dropped=self._dropped
            )
        )
        self.flush()
        self._wake.set()
        os.close(self._file)
        self._file = None
        self.enabled = False

    def _open(self):
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, "meter-rank-%d.jsonl" % self.rank)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._records.append(
            self._record(
                "meter",
                format=FORMAT,
                rank=self.rank,
                world=self.world,
                pid=self._pid,
                host=socket.gethostname(),
            )
        )
        self.flush()
        atexit.register(self.close)
        thread = threading.Thread(target=self._run, name="trainshed-meter", daemon=True)
        thread.start()

    def _run(self):
        while not self._wake.wait(FLUSH_SECONDS):
            self.flush()

    def _mark(self, event, **fields):
        if self.enabled and not self._closed:
            self._records.append(self._record(event, **fields))

    def _record(self, event, **fields):
        record = {"event": event, "mono": time.monotonic(), "wall": time.time()}
        record.update(fields)
        return record

    def _line(self, record):
        record["seq"] = self._seq
        self._seq += 1
        return json.dumps(record, default=str) + "\n"

    def _steps_line(self, steps):
        first = self._written_steps
        self._written_steps += sum(s[0] for s in steps)
        self._written_samples += sum(s[1] for s in steps)
        # Wall time of the last step of the line, from the offset of the clocks now.
        offset = time.time() - time.monotonic()
        return self._line(
            {
                "event": "steps",
                "mono": steps[-1][2],
                "wall": steps[-1][2] + offset,
                "first": first,
                "counts": [s[0] for s in steps],
                "samples": [s[1] for s in steps],
                "at": [round(s[2], 6) for s in steps],
            }
        )


def dataset_checksum(root: str) -> str:
    """ "sha256:<hex>" over the names and contents of all files below `root`, in sorted order."""
    import hashlib

    outer = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files):
            path = os.path.join(folder, name)
            inner = hashlib.sha256()
            with open(path, "rb") as stream:
                for block in iter(lambda: stream.read(1 << 20), b""):
                    inner.update(block)
            relative = os.path.relpath(path, root).replace(os.sep, "/")
            outer.update(("%s  %s\n" % (inner.hexdigest(), relative)).encode("utf-8"))
    return "sha256:" + outer.hexdigest()


def _drain(queue):
    return [queue.popleft() for _ in range(len(queue))]


def _number(value):
    value = float(value)
    if math.isfinite(value):
        return {"value": value}
    # JSON has no NaN; the text is kept so that the result fails for what it was.
    return {"value": None, "not_finite": str(value)}


def _first(*values):
    return next(v for v in values if v is not None and v != "")
