"""`python -m trainshed_cp SRC DST`: copies a folder when SRC ends in "/", else one file.

For scripts of the platform (utils.sh) that run with the job's own Python.
"""

import sys

from moxing import file


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: python -m trainshed_cp SRC DST", file=sys.stderr)
        return 2
    source, target = sys.argv[1:]
    try:
        if source.endswith("/"):
            file.copy_parallel(source, target)
        else:
            file.copy(source, target)
    except Exception as error:  # one line for the log, whatever the store says
        print(f"trainshed: cannot copy {source} to {target}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
