"""Distinguishes URLs from paths, and holds the bridge to Trainshed's store, crossed only when a URL is used.

`import moxing` stands at the top of scripts that may never touch a URL, so it must cost nothing.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


def is_remote(text):
    return text.startswith(("obs://", "s3://"))


def __getattr__(name):
    from moxing.framework.file import bridge

    return getattr(bridge, name)
