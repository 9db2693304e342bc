"""The server's certificate: made at first start, signed by itself, kept. Clients pin its fingerprint."""

from __future__ import annotations

import datetime
import ipaddress
import socket
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from trainshed.files import write_atomic

_YEARS = 10


def ensure(folder: Path, host: str) -> tuple[Path, Path]:
    """Paths of certificate and key. A site's own may be laid in their place."""
    certificate, key = folder / "certificate.pem", folder / "certificate-key.pem"
    if not (certificate.exists() and key.exists()):
        _make(certificate, key, host)
    return certificate, key


def fingerprint(certificate: Path) -> str:
    """SHA-256 of the certificate, as clients pin it."""
    return x509.load_pem_x509_certificate(certificate.read_bytes()).fingerprint(hashes.SHA256()).hex()


def _make(certificate: Path, key: Path, host: str) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, socket.gethostname()[:64] or "trainshed")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(private, hashes.SHA256())
    )
    secret = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_atomic(key, secret, mode=0o600, durable=True)
    write_atomic(certificate, made.public_bytes(serialization.Encoding.PEM), durable=True)


def _names(host: str) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    for text in dict.fromkeys((host, socket.gethostname(), socket.getfqdn())):
        try:
            address = ipaddress.ip_address(text)
            if not address.is_unspecified and not address.is_loopback:
                found.append(x509.IPAddress(address))
        except ValueError:
            if text.isascii() and text not in ("", "localhost"):
                found.append(x509.DNSName(text))
    return found
