"""Takes rights away from itself, then becomes a process of a node: python confine.py SETTINGS COMMAND…

Not bubblewrap, which stays between as a parent: a signal to the process' group
would end it before the process could save its work. Started by path, so that
it loads the standard library only. SETTINGS is JSON: folders to hide, folders
below them to show, and capabilities to keep.
"""

# pathlib would double the time this takes to load.
# ruff: noqa: PTH103, PTH112
from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import struct
import sys

_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    16384,
    1 << 18,
)
_PR_SET_PDEATHSIG, _PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = (
    1,
    23,
    24,
    38,
    47,
)
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
_CAPABILITIES = {"CAP_SETGID": 6, "CAP_SETUID": 7, "CAP_SYS_CHROOT": 18}
_KEYRINGS = {  # add_key, request_key and keyctl follow one another; by audit architecture
    0xC000003E: 248,  # x86-64
    0x40000003: 286,  # i386, which an x86-64 kernel runs too
    0xC00000B7: 217,  # aarch64
    0x40000028: 309,  # arm
}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_SPEC_ALLOW = 1, 4
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    settings = json.loads(sys.argv[1])
    try:
        _enter_private_view(settings["hidden"], settings["shown"])
        _drop(sum(1 << _CAPABILITIES[name] for name in settings["kept"]))
        _shut_keyrings()
        # Set last: gaining or losing capabilities clears it.
        _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    except OSError as error:
        sys.exit(f"trainshed: this process cannot be confined: {error}")
    # Python ignores these for itself, and what it becomes would go on ignoring them.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 (a list, and no shell)
    except OSError as error:
        sys.stderr.write(f"trainshed: {sys.argv[2]}: {error.strerror}\n")
        sys.exit(127)


def _enter_private_view(hidden: list[str], shown: list[str]) -> None:
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWNS if uid == 0 else _CLONE_NEWNS | _CLONE_NEWUSER)
    if uid != 0:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    folders = {path: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in shown}
    for path in hidden:
        if os.path.isdir(path):
            _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m")
    for path, folder in folders.items():
        os.makedirs(path, exist_ok=True)
        _mount(f"/proc/self/fd/{folder}", path, None, _MS_BIND)
    for path in hidden:
        if os.path.isdir(path):
            _mount("tmpfs", path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)


def _drop(kept: int) -> None:
    _call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    number = 0
    while (found := _libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0)) >= 0:
        if found and not kept >> number & 1:
            _call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
        number += 1
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)  # effective, permitted, inheritable; low, then high
    _call("capset", header, sets)
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _shut_keyrings() -> None:
    """Refuse the system calls of the kernel's keyrings, which no namespace divides: they hold the user's tickets and keys.

    The flag keeps the process as fast as it was: kernels before 5.16 slow down whoever has a filter.
    """
    number = _SECCOMP.get(os.uname().machine)
    if number is None:
        return
    load, equal, at_least, mask, give = 0x20, 0x15, 0x35, 0x54, 0x06
    words: list[tuple[int, int, int, int]] = []
    for machine, first in _KEYRINGS.items():
        words += [
            (load, 0, 0, 4),  # the architecture
            (equal, 0, 5, machine),
            (load, 0, 0, 0),  # the number of the call
            (mask, 0, 0, 0xBFFFFFFF),  # also of the x32 calls
            (at_least, 0, 2, first),
            (at_least, 1, 0, first + 3),
            (give, 0, 0, _REFUSE),
        ]
    words.append((give, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *word) for word in words))
    program = struct.pack("HxxxxxxP", len(words), ctypes.addressof(code))
    done = _libc.syscall(number, _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_SPEC_ALLOW, program)
    if done != 0 and ctypes.get_errno() not in (errno.ENOSYS, errno.EINVAL):  # a kernel without filters
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    try:
        _call("mount", encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    except OSError as error:
        raise OSError(error.errno, f"mount at {target}: {error.strerror}") from error


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


if __name__ == "__main__":
    main()
