"""`moxing.file`: every documented function, under the names scripts use."""

from moxing.framework.file import file_io
from moxing.framework.file.errors import (
    MoxFileNameDuplicateException,
    MoxFileNotExistsException,
    MoxFileReadException,
    MoxFileRespException,
)
from moxing.framework.file.file_io import (
    append,
    append_remote,
    copy,
    copy_parallel,
    exists,
    get_size,
    glob,
    is_directory,
    list_directory,
    make_dirs,
    mk_dir,
    read,
    remove,
    rename,
    scan_dir,
    set_auth,
    stat,
    walk,
    write,
)
from moxing.framework.file.file_object import File
from moxing.framework.file.file_shift import shift

__all__ = [
    "File",
    "MoxFileNameDuplicateException",
    "MoxFileNotExistsException",
    "MoxFileReadException",
    "MoxFileRespException",
    "append",
    "append_remote",
    "copy",
    "copy_parallel",
    "exists",
    "file_io",
    "get_size",
    "glob",
    "is_directory",
    "list_directory",
    "make_dirs",
    "mk_dir",
    "read",
    "remove",
    "rename",
    "scan_dir",
    "set_auth",
    "shift",
    "stat",
    "walk",
    "write",
]
