"""With whose keys which object store is reached: typed, carried from the Client to whoever needs it.

It reads nothing of the process; doors make one from their variables with `from_environment`. The store itself is
loaded when keys are asked for: most commands never do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainshed.store import Credentials

_SCHEMES = ("s3", "obs")
_PREFIXES = ("AWS_", "OBS_", "S3_", "TRAINSHED_STORE_")


@dataclass(frozen=True)
class StoreAccess:
    """One caller's way to object stores.

    In this order: `given` for every URL; what `variables` name; the profiles in `home`; the embedded store of
    `home`, which is started when it is asked for.
    """

    home: Path
    given: Credentials | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that S3's and OBS's own clients read, and TRAINSHED_STORE_PROFILE and _ENDPOINT."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], home: Path) -> StoreAccess:
        """The store that these variables name. What is wrong with them is said when a store is needed."""
        return cls(home, None, {n: v for n, v in environ.items() if n.startswith(_PREFIXES)})

    def credentials(self, scheme: str) -> Credentials:
        """Keys and endpoint for URLs of this scheme."""
        from trainshed.store import resolve

        return self.given or resolve(scheme, environ=self.variables, home=self.home)

    def keys(self, url: str) -> Credentials | None:
        """Keys and endpoint for a URL; None for what lies in a folder."""
        scheme, separator, _ = url.partition("://")
        return self.credentials(scheme) if separator and scheme in _SCHEMES else None
