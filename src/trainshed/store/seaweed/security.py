"""Access control of the embedded store's inner ports: one certificate and one signing key.

SeaweedFS's parts (master, volume, filer, S3) talk to one another over loopback, where every local user and every
job can connect. Each inner port, HTTP and gRPC, therefore demands the store's own certificate from any client that
connects; only S3's HTTP port is open, and it demands signed requests. Certificate and key are made at the first
start and are in the store's folder, which only its owner can read.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from pathlib import Path

from trainshed.errors import RefusedError
from trainshed.payload.modelarts.trainshed_store.errors import StoreError
from trainshed.store.seaweed import identities

CERTIFICATE, KEY, SIGNING_KEY = "internal.crt", "internal.pem", "internal.key"
DAYS = 36500
OPENSSL_SECONDS = 60.0


def ensure(folder: Path) -> dict[str, str]:
    """The variables with SeaweedFS's certificate and keys; makes both on first use."""
    if not (folder / CERTIFICATE).exists():
        _make_certificate(folder)
    if not (folder / SIGNING_KEY).exists():
        identities.write_secret(folder / SIGNING_KEY, secrets.token_hex(32))
    certificate, key = str(folder / CERTIFICATE), str(folder / KEY)
    found = {"WEED_GRPC_CA": certificate, "WEED_HTTPS_CLIENT_ENABLED": "true"}
    for part in ("MASTER", "VOLUME", "FILER", "S3", "CLIENT"):
        found |= {f"WEED_GRPC_{part}_CERT": certificate, f"WEED_GRPC_{part}_KEY": key}
    for part in ("MASTER", "VOLUME", "FILER", "CLIENT"):
        found |= {f"WEED_HTTPS_{part}_CERT": certificate, f"WEED_HTTPS_{part}_KEY": key}
        found[f"WEED_HTTPS_{part}_CA"] = certificate
    signing_key = (folder / SIGNING_KEY).read_text()
    for purpose in ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ"):
        found[f"WEED_JWT_{purpose}_KEY"] = signing_key
    return found


def _make_certificate(folder: Path) -> None:
    """A self-signed certificate: without its key no one can connect or impersonate the store."""
    with tempfile.TemporaryDirectory(prefix=".certificate-", dir=folder) as scratch:
        made = {name: Path(scratch) / name for name in (KEY, CERTIFICATE)}
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ]
        command += ["-days", str(DAYS), "-subj", "/CN=trainshed-store"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1"]
        command += ["-keyout", str(made[KEY]), "-out", str(made[CERTIFICATE])]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=OPENSSL_SECONDS)
        except FileNotFoundError as error:
            raise RefusedError(
                "the embedded store needs the program 'openssl' to make its certificate", "install openssl"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise StoreError(
                f"openssl made no certificate in {OPENSSL_SECONDS:.0f} s", "try again"
            ) from error
        except subprocess.CalledProcessError as error:
            raise StoreError(
                f"openssl made no certificate: {error.stderr.strip()[-400:]}",
                "OpenSSL 1.1.1 or later is needed",
            ) from error
        for name, path in made.items():  # the certificate last: where it is, its key is
            os.chmod(path, 0o600)  # noqa: PTH101
            path.replace(folder / name)
