"""The functions of `moxing.file`, for local paths and obs:// or s3:// URLs alike."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, type-arg"
# ruff: noqa: PTH102, PTH103, PTH105, PTH107, PTH110, PTH112, PTH113, PTH114, PTH116, PTH118, PTH202, PTH207
# Scripts pass plain strings and expect the errors of plain os calls.

import collections
import errno
import os

from moxing.framework.file import remote
from moxing.framework.file.errors import MoxFileNameDuplicateException, MoxFileNotExistsException

# Scripts read and set these; the engine finds its own concurrency.
_LARGE_FILE_METHOD = 2
_LARGE_FILE_TASK_NUM = 1
_NUMBER_OF_PROCESSES = NUMBER_OF_PROCESSES = 1

Stat = collections.namedtuple("Stat", "length mtime_nsec is_directory")
is_remote = remote.is_remote


def set_auth(
    ak=None,
    sk=None,
    server=None,
    port=None,
    is_secure=None,
    ssl_verify=None,
    long_conn_mode=None,
    path_style=None,
    retry=None,
    security_token=None,
    **ignored,
):
    remote.set_auth(ak, sk, security_token, server, port, is_secure, ssl_verify, path_style, retry)


def copy(src_url, dst_url, client_id=None, **ignored):
    """Copy one file."""
    if is_directory(src_url) and not _is_file(src_url):
        raise IsADirectoryError(
            errno.EISDIR, f"{src_url} is a directory: use moxing.file.copy_parallel for directories"
        )
    remote.copy_tree(_text(src_url), _text(dst_url), force=True)


def copy_parallel(
    src_url, dst_url, file_list=None, threads=16, is_processing=True, use_queue=True, **ignored
):
    """Copy a directory's contents (or one file); an empty source is not an error."""
    remote.copy_tree(_text(src_url), _text(dst_url), empty_ok=True, only=file_list)


def exists(url, client_id=None):
    if not is_remote(_text(url)):
        return os.path.exists(url)
    return _is_file(url) or is_directory(url)


def _is_file(url):
    if not is_remote(_text(url)):
        return os.path.isfile(url)
    return _head(url) is not None


def _head(url):
    location = remote.parse_url(_text(url))
    if location.looks_like_directory:
        return None
    with remote.translated():
        return remote.client(location.scheme).head(location.bucket, location.key)


def is_directory(url, client_id=None):
    if not is_remote(_text(url)):
        return os.path.isdir(url)
    location = remote.parse_url(_text(url))
    with remote.translated():
        try:
            if not location.key:
                remote.client(location.scheme).request("HEAD", location.bucket, "")
                return True
            return any(True for _ in _listed(location, limit=1))
        except remote.ObjectNotFoundError:
            return False


def _listed(location, delimiter="", limit=0):
    return remote.client(location.scheme).listing(
        location.bucket, location.prefix, delimiter=delimiter, limit=limit
    )


def make_dirs(url, client_id=None):
    """A directory and its parents; it may exist already."""
    if not is_remote(_text(url)):
        os.makedirs(url, exist_ok=True)
        return
    if _is_file(url):
        raise MoxFileNameDuplicateException(f"{url} is a file")
    if is_directory(url):
        return
    location = remote.parse_url(_text(url))
    with remote.translated():
        if location.key:
            remote.client(location.scheme).put(location.bucket, location.prefix, b"")
        else:
            remote.client(location.scheme).create_bucket(location.bucket)


def mk_dir(url, client_id=None):
    """A directory whose parent exists."""
    text = _text(url).rstrip("/")
    parent = text.rpartition("/")[0]
    if not is_remote(text):
        if not os.path.isdir(text):
            os.mkdir(text)
        return
    if not is_directory(parent):
        raise MoxFileNotExistsException(f"parent directory {parent} does not exist")
    make_dirs(text)


def _children(url):
    """Names directly below a remote directory: (name, is_directory, Listed)."""
    location = remote.parse_url(_text(url))
    with remote.translated():
        for item in _listed(location, delimiter="/"):
            name = item.key[len(location.prefix) :].rstrip("/")
            if name:
                yield name, item.is_prefix or item.key.endswith("/"), item


def list_directory(
    url, recursive=False, remove_sep=True, skip_file=False, skip_dir=False, client_id=None, **ignored
):
    """Relative names of what is in a directory."""
    if not is_directory(url):
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", _text(url))
    sep = "" if remove_sep else "/"
    result = []
    if recursive:
        for root, directories, files in walk(url):
            base = root.rstrip("/")[len(_text(url).rstrip("/")) :].lstrip("/")
            base = base + "/" if base else ""
            result += [] if skip_dir else [base + d + sep for d in directories]
            result += [] if skip_file else [base + f for f in files]
        return result
    if is_remote(_text(url)):
        found = [(name, folder) for name, folder, _ in _children(url)]
    else:
        found = [(item.name, item.is_dir()) for item in os.scandir(url)]
    for name, folder in sorted(set(found)):
        if (folder and skip_dir) or (not folder and skip_file):
            continue
        result.append(name + sep if folder else name)
    return list(dict.fromkeys(result))


def walk(url, topdown=True, onerror=None, followlinks=False):
    """As os.walk, with URLs for roots."""
    if not is_remote(_text(url)):
        yield from _original_walk(url, topdown, onerror, followlinks)
        return
    location = remote.parse_url(_text(url))
    tree: dict = {"": (set(), set())}
    with remote.translated():
        for item in _listed(location):
            name = item.key[len(location.prefix) :]
            parts = [part for part in name.split("/") if part]
            folders = parts if name.endswith("/") else parts[:-1]
            at = ""
            for folder in folders:
                tree[at][0].add(folder)
                at = at + "/" + folder if at else folder
                tree.setdefault(at, (set(), set()))
            if parts and not name.endswith("/"):
                tree[at][1].add(parts[-1])
    root = _text(url).rstrip("/")

    def visit(at):
        folders, files = sorted(tree[at][0]), sorted(tree[at][1])
        row = (root + "/" + at if at else _text(url), folders, files)
        if topdown:
            yield row
        for folder in folders:
            below = at + "/" + folder if at else folder
            if below in tree:
                yield from visit(below)
        if not topdown:
            yield row

    yield from visit("")


_original_walk = os.walk


class DirEntry:
    """What `scan_dir` yields; as os.DirEntry."""

    def __init__(self, url, name, folder, item):
        self.name, self.path = name, _text(url).rstrip("/") + "/" + name
        self._folder, self._item = folder, item

    def is_dir(self, **ignored):
        return self._folder

    def is_file(self, **ignored):
        return not self._folder

    def is_symlink(self):
        return False

    def stat(self, **ignored):
        return Stat(self._item.size, int(self._item.modified * 1e9), self._folder)

    def __fspath__(self):
        return self.path


def scan_dir(url):
    if not is_remote(_text(url)):
        return iter(list(os.scandir(url)))
    if not is_directory(url):
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", _text(url))
    return iter([DirEntry(url, name, folder, item) for name, folder, item in _children(url)])


def glob(url, recursive=False):
    """URLs (or paths) that match a pattern, as glob.glob matches."""
    import glob as local
    import re

    text = _text(url)
    if not is_remote(text):
        return local.glob(text, recursive=recursive)
    scheme, _, rest = text.partition("://")
    segments = rest.rstrip("/").split("/")
    fixed = next((i for i, part in enumerate(segments) if re.search(r"[*?\[]", part)), len(segments))
    if fixed == len(segments):
        return [text] if exists(text) else []
    if fixed == 0:
        raise ValueError(f"a bucket's name cannot be a pattern: {text}")
    base = scheme + "://" + "/".join(segments[:fixed])
    names: set = set()
    for root, folders, files in walk(base):
        below = root.rstrip("/")[len(base) :].lstrip("/")
        names.update((below + "/" if below else "") + name for name in folders + files)
    wanted = segments[fixed:]
    return [base + "/" + name for name in sorted(names) if _matches(name.split("/"), wanted)]


def _matches(parts, pattern):
    import fnmatch

    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    if not parts or (parts[0].startswith(".") and not pattern[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def read(url, client_id=None, binary=False, **ignored):
    if is_remote(_text(url)):
        location = remote.parse_url(_text(url))
        with remote.translated():
            data = remote.client(location.scheme).get(location.bucket, location.key).body
    else:
        try:
            with open(url, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise MoxFileNotExistsException(f"no such file: {url}") from None
    return data if binary else data.decode("utf-8")


def write(url, data, client_id=None, binary=False, **ignored):
    data = data.encode("utf-8") if isinstance(data, str) else bytes(data)
    if is_remote(_text(url)):
        location = remote.parse_url(_text(url))
        if location.looks_like_directory:
            raise IsADirectoryError(errno.EISDIR, "Is a directory", _text(url))
        with remote.translated():
            remote.client(location.scheme).put(location.bucket, location.key, data)
        return
    with open(url, "wb") as file:
        file.write(data)


def append(url, data, client_id=None, binary=False, **ignored):
    """Add to the end; stores have no append, so the object is read and written whole."""
    data = data.encode("utf-8") if isinstance(data, str) else bytes(data)
    if is_remote(_text(url)):
        before = read(url, binary=True) if _is_file(url) else b""
        write(url, before + data, binary=True)
        return
    with open(url, "ab") as file:
        file.write(data)


def append_remote(src_url, dst_url, client_id=None, **ignored):
    """Add one file's content to the end of another."""
    append(dst_url, read(src_url, binary=True), binary=True)


def remove(url, recursive=False, client_id=None):
    """Delete a file, or with `recursive` a directory; a directory without it stays."""
    text = _text(url)
    if not is_remote(text):
        if os.path.isdir(text) and not os.path.islink(text):
            if recursive:
                import shutil

                shutil.rmtree(text)
            return
        try:
            os.remove(text)
        except FileNotFoundError:
            raise MoxFileNotExistsException(f"no such file: {text}") from None
        return
    location = remote.parse_url(text)
    client = remote.client(location.scheme)
    if _is_file(text):
        with remote.translated():
            client.delete(location.bucket, location.key)
        if not recursive:
            return
    elif not is_directory(text):
        raise MoxFileNotExistsException(f"no such file or directory: {text}")
    if recursive:
        with remote.translated():
            client.delete_many(location.bucket, [item.key for item in _listed(location)])


def rename(src_url, dst_url):
    """Move a file or directory, between any of local and remote."""
    src, dst = _text(src_url), _text(dst_url)
    folder = is_directory(src) and not _is_file(src)
    if not folder and not _is_file(src):
        raise MoxFileNotExistsException(f"no such file or directory: {src}")
    if (folder and _is_file(dst)) or (not folder and not _is_file(dst) and is_directory(dst)):
        raise MoxFileNameDuplicateException(f"{dst} exists and is of the other kind")
    if not is_remote(src) and not is_remote(dst):
        import shutil

        os.replace(src, dst) if not folder else shutil.move(src, dst)
        return
    summary = remote.copy_tree(src, dst, force=True, empty_ok=True)
    if not summary.complete:
        names = ", ".join(problem.name for problem in summary.unrepresentable + summary.unstable)
        raise OSError(errno.EINVAL, f"not everything could be moved, the source is kept: {names}")
    remove(src, recursive=folder)


def stat(url, client_id=None):
    text = _text(url)
    if not is_remote(text):
        try:
            info = os.stat(text)
        except FileNotFoundError:
            raise MoxFileNotExistsException(f"no such file or directory: {text}") from None
        return Stat(info.st_size, info.st_mtime_ns, os.path.isdir(text))
    head = _head(text)
    if head is not None:
        from email.utils import parsedate_to_datetime

        modified = head.headers.get("last-modified")
        seconds = parsedate_to_datetime(modified).timestamp() if modified else 0
        return Stat(int(head.headers.get("content-length") or 0), int(seconds * 1e9), False)
    if is_directory(text):
        return Stat(0, 0, True)
    raise MoxFileNotExistsException(f"no such file or directory: {text}")


def get_size(url, recursive=False, client_id=None):
    """Bytes of a file; a directory has 0 unless `recursive`."""
    info = stat(url)
    if not info.is_directory:
        return info.length
    if not recursive:
        return 0
    if is_remote(_text(url)):
        with remote.translated():
            return sum(item.size for item in _listed(remote.parse_url(_text(url))))
    return sum(os.path.getsize(os.path.join(root, name)) for root, _, files in os.walk(url) for name in files)


def _text(url):
    return os.fspath(url)
