"""`shift('os', 'mox')`: after it, ordinary open, os, os.path, glob and shutil calls take URLs as well.

Each replacement looks at its first argument (or two) and calls the original for anything that is not a URL.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, type-arg"

import builtins
import functools
import io
import os

from moxing.framework.file import file_io, remote
from moxing.framework.file.file_object import File

_originals: dict = {}


def shift(before="os", after="mox"):
    """('os', 'mox') switches on; ('mox', 'os') switches off again."""
    if (before, after) == ("os", "mox"):
        _on()
    elif (before, after) == ("mox", "os"):
        _off()
    else:
        raise ValueError(f"shift knows ('os', 'mox') and ('mox', 'os'), not {(before, after)!r}")


def _on():
    if _originals:
        return
    for module, name, replacement in _table():
        original = getattr(module, name)
        _originals[module, name] = original
        setattr(module, name, _choosing(original, replacement))


def _off():
    for (module, name), original in _originals.items():
        setattr(module, name, original)
    _originals.clear()


def _choosing(original, replacement):
    @functools.wraps(original)
    def call(*args, **kwargs):
        if any(
            isinstance(a, (str, os.PathLike)) and remote.is_remote(os.fspath(a))
            for a in (*args[:2], *kwargs.values())
        ):
            return replacement(*args, **kwargs)
        return original(*args, **kwargs)

    return call


def _open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, **ignored):
    return File(file, mode, encoding=encoding, newline=newline, errors=errors)


def _makedirs(name, mode=0o777, exist_ok=False):
    if not exist_ok and file_io.exists(name):
        raise FileExistsError(f"File exists: {name!r}")
    file_io.make_dirs(name)


def _mkdir(path, mode=0o777, **ignored):
    if file_io.exists(path):
        raise FileExistsError(f"File exists: {path!r}")
    file_io.mk_dir(path)


def _rmdir(path, **ignored):
    if file_io.list_directory(path):
        raise OSError(f"Directory not empty: {path!r}")
    file_io.remove(path, recursive=True)


def _remove(path, **ignored):
    if file_io.is_directory(path) and not file_io._is_file(path):
        raise IsADirectoryError(f"Is a directory: {path!r}")
    file_io.remove(path)


def _stat(path, **ignored):
    info = file_io.stat(path)
    kind = 0o040755 if info.is_directory else 0o100644
    seconds = info.mtime_nsec // 10**9
    return os.stat_result((kind, 0, 0, 1, 0, 0, info.length, seconds, seconds, seconds))


def _copy_file(src, dst, **ignored):
    target = os.fspath(dst)
    if file_io.is_directory(target) and not file_io._is_file(target):
        target = target.rstrip("/") + "/" + os.fspath(src).rstrip("/").rsplit("/", 1)[-1]
    file_io.copy(src, target)
    return target


def _copy_tree(src, dst, *ignored, **also_ignored):
    file_io.copy_parallel(src, dst)
    return dst


def _move(src, dst, *ignored):
    file_io.rename(src, dst)
    return dst


def _replace(src, dst, **ignored):
    file_io.rename(src, dst)


def _table():
    import glob
    import shutil

    return [
        (builtins, "open", _open),
        (io, "open", _open),
        (os, "listdir", lambda path=".": file_io.list_directory(path)),
        (os, "makedirs", _makedirs),
        (os, "mkdir", _mkdir),
        (os, "remove", _remove),
        (os, "unlink", _remove),
        (os, "rmdir", _rmdir),
        (os, "rename", _replace),
        (os, "replace", _replace),
        (os, "stat", _stat),
        (os, "lstat", _stat),
        (os, "walk", file_io.walk),
        (os, "scandir", file_io.scan_dir),
        (os, "access", lambda path, mode, **ignored: file_io.exists(path)),
        (os.path, "exists", file_io.exists),
        (os.path, "lexists", file_io.exists),
        (os.path, "isfile", file_io._is_file),
        (os.path, "isdir", file_io.is_directory),
        (os.path, "islink", lambda path: False),
        (os.path, "getsize", file_io.get_size),
        (os.path, "getmtime", lambda path: file_io.stat(path).mtime_nsec / 1e9),
        (os.path, "abspath", os.fspath),
        (os.path, "realpath", lambda path, **ignored: os.fspath(path)),
        (glob, "glob", lambda pathname, recursive=False, **ignored: file_io.glob(pathname, recursive)),
        (glob, "iglob", lambda pathname, recursive=False, **ignored: iter(file_io.glob(pathname, recursive))),
        (shutil, "copy", _copy_file),
        (shutil, "copy2", _copy_file),
        (shutil, "copyfile", _copy_file),
        (shutil, "copytree", _copy_tree),
        (shutil, "move", _move),
        (shutil, "rmtree", lambda path, *ignored, **also_ignored: file_io.remove(path, recursive=True)),
    ]
