"""The end of ranks: they wait for one another, output is complete, and an exit code stays what it is.

The framework is a stand-in whose library crashes when the process is left by the ordinary way.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import trainshed

pytestmark = [pytest.mark.contracts, pytest.mark.core]

SITE = Path(trainshed.__file__).parent / "payload"
FRAMEWORK = """
import ctypes, os

def init_process_group():
    # As a static destructor of a framework's library that runs into connections already closed.
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)

def get_rank():
    return int(os.environ["RANK"])

def get_world_size():
    return int(os.environ["WORLD_SIZE"])
"""
JOINED = "from torch.distributed.distributed_c10d import init_process_group, get_rank\ninit_process_group()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "torch" / "distributed"
    package.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "distributed_c10d.py").write_text(FRAMEWORK)
    return tmp_path


def start(folder: Path, program: str, size: int, hooked: bool = True) -> list[subprocess.Popen[str]]:
    """`size` ranks that run the program."""
    (folder / "program.py").write_text(JOINED + program)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{SITE / 'start'}:{SITE / 'common'}:{folder}",
        "TRAINSHED_START": "trainshed_leave" if hooked else "",
        "TRAINSHED_LEAVE": f"127.0.0.1:{port}",
        "WORLD_SIZE": str(size),
    }
    return [
        subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=folder,
            env=env | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]


def ended(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each."""
    texts = [rank.communicate(timeout=60) for rank in ranks]
    return [(rank.returncode, *text) for rank, text in zip(ranks, texts, strict=True)]


def test_the_stand_in_crashes_by_itself(folder: Path) -> None:
    ((code, _, _),) = ended(start(folder, "", 1, hooked=False))
    assert code == -signal.SIGABRT


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_that_did_their_work_end_well(folder: Path, size: int) -> None:
    done = ended(start(folder, "print('trained', get_rank())", size))
    assert done == [(0, f"trained {rank}\n", "") for rank in range(size)]


@pytest.mark.parametrize("first", [0, 1])
def test_a_rank_leaves_when_the_last_one_is_done(folder: Path, first: int) -> None:
    # The last to finish sees that the first, long done, is still there.
    program = f"""
import os, pathlib, time
if get_rank() == {first}:
    pathlib.Path("pid").write_text(str(os.getpid()))
else:
    while not pathlib.Path("pid").exists() or not pathlib.Path("pid").read_text():
        time.sleep(0.01)
    for _ in range(50):
        os.kill(int(pathlib.Path("pid").read_text()), 0)
        time.sleep(0.01)
    print("it waits")
"""
    done = ended(start(folder, program, 2))
    assert [code for code, _, _ in done] == [0, 0], done
    assert done[1 - first][1] == "it waits\n"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("raise ValueError('no data')", 1),
        ("import sys; sys.exit(3)", 3),
        ("raise SystemExit(4)", 4),
        ("exit(5)", 5),
        ("import sys; sys.exit('no data')", 1),
        ("import os; os._exit(6)", 6),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_a_rank_that_fails_keeps_its_exit_code_and_waits_for_nobody(
    folder: Path, end: str, code: int
) -> None:
    program = f"if get_rank() == 0:\n    exec({end!r})\nimport time; time.sleep(600)"
    failing, working = start(folder, program, 2)
    try:
        failing.communicate(timeout=60)
        assert failing.returncode == code
        assert working.poll() is None
    finally:
        working.kill()
        working.communicate()


def test_an_exit_code_is_kept_even_where_it_cannot_be_foreseen(folder: Path) -> None:
    program = "import sys\ntry:\n    sys.exit(0)\nfinally:\n    raise SystemExit(7)\n"
    assert [code for code, _, _ in ended(start(folder, program, 2))] == [7, 7]


@pytest.mark.parametrize("dies", [0, 1])
def test_nobody_waits_for_a_rank_that_died(folder: Path, dies: int) -> None:
    program = f"import os, time; time.sleep(1)\nif get_rank() == {dies}: os.kill(os.getpid(), 9)\n"
    done = ended(start(folder, program, 3))
    assert [code for code, _, _ in done] == [-9 if rank == dies else 0 for rank in range(3)]


@pytest.mark.parametrize("end", ["", "import sys; sys.exit()", "import sys; sys.exit(0)", "quit()"])
def test_python_goes_through_its_own_end_before(folder: Path, end: str) -> None:
    program = f"""
import atexit, ctypes, threading, time
class Kept:
    def __del__(self):
        print("object destroyed", flush=True)
kept = Kept()
atexit.register(print, "first registered")
atexit.register(print, "last registered")
unclosed = open("unclosed.txt", "w")
unclosed.write("all of it")
def work():
    time.sleep(0.3)
    print("thread done")
threading.Thread(target=work).start()
ctypes.CDLL(None).printf(b"written by C\\n")
{end}
"""
    ((code, out, err),) = ended(start(folder, program, 1))
    assert (code, err) == (0, "")
    lines = ["thread done", "last registered", "first registered", "object destroyed", "written by C"]
    assert sorted(out.splitlines()) == sorted(lines)
    assert [line for line in out.splitlines() if line != "written by C"] == lines[:-1]
    assert (folder / "unclosed.txt").read_text() == "all of it"


def test_children_that_were_forked_off_neither_wait_nor_hold_the_place(folder: Path) -> None:
    program = """
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=print, args=("child", get_rank()))
child.start()
child.join()
print(child.exitcode)
"""
    for rank, (code, out, err) in enumerate(ended(start(folder, program, 2))):
        assert (code, sorted(out.splitlines()), err) == (0, ["0", f"child {rank}"], "")
