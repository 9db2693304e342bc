"""Tries every port and socket of an embedded store without a key; prints a JSON list of what answered.

    python intruder.py WEED SCRATCH ADDRESS...     (ADDRESS: a port of 127.0.0.1, or a socket's path)

Standard library only: it runs as another user and inside jobs.
"""

import concurrent.futures
import json
import pathlib
import socket
import ssl
import subprocess
import sys

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
PATIENCE = 5
ALIVE = ("/status", "/healthz")
REQUESTS = [
    *(("GET", path) for path in ("/", "/ui/index.html", "/dir/status", "/vol/status", "/cluster/status")),
    *(("GET", path) for path in ("/dir/assign", "/dir/lookup?volumeId=1", "/col/delete?collection=kept")),
    *(
        ("GET", path)
        for path in ("/vol/grow?count=1", "/vol/vacuum", "/stats/disk", "/metrics", "/debug/vars")
    ),
    *(
        ("GET", path)
        for path in ("/buckets/", "/buckets/kept/x", "/kept", "/kept/x", "/kept?policy", "/1,01637037d6")
    ),
    ("POST", "/submit"),
    ("POST", "/buckets/kept/y"),
    ("POST", "/?Action=ListUsers&Version=2010-05-08"),
    ("POST", "/?Action=CreateAccessKey&Version=2010-05-08"),
    ("PUT", "/kept/y"),
    ("PUT", "/new-bucket"),
    ("DELETE", "/kept/x"),
    ("DELETE", "/kept"),
    ("DELETE", "/buckets/kept?recursive=true"),
    ("DELETE", "/1,01637037d6"),
]


def connection(address):
    if address.isdigit():
        return socket.create_connection(("127.0.0.1", int(address)), timeout=PATIENCE)
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(PATIENCE)
    made.connect(address)
    return made


def contexts(scratch):
    """No TLS, TLS without a certificate, TLS with one that anybody can make."""
    yield "plain", None
    bare = ssl.create_default_context()
    bare.check_hostname, bare.verify_mode = False, ssl.CERT_NONE
    yield "tls", bare
    key, certificate = (str(pathlib.Path(scratch) / name) for name in ("own.pem", "own.crt"))
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=trainshed-store", "-keyout", key, "-out", certificate]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    own = ssl.create_default_context()
    own.check_hostname, own.verify_mode = False, ssl.CERT_NONE
    own.load_cert_chain(certificate, key)
    yield "own certificate", own


def answer(address, context, message):
    """The first bytes that come back; empty when the connection is refused or closed."""
    try:
        with connection(address) as plain:
            secured = context.wrap_socket(plain) if context else plain
            secured.sendall(message)
            received = b""
            while len(received) < 4096:
                piece = secured.recv(4096)
                if not piece:
                    break
                received += piece
            return received
    except OSError:  # refused, reset, a TLS alert; nothing within the limit
        return b""


def greets(address, context):
    """Whether the connection, and TLS on it, comes about at all."""
    try:
        with connection(address) as plain:
            if context:
                context.wrap_socket(plain)
    except OSError:
        return False
    return True


def tried(address, name, context):
    if not greets(address, context):
        return
    for method, path in [*REQUESTS, *(("GET", path) for path in ALIVE)]:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"
        )
        received = answer(address, context, head.encode())
        status = received[9:12].decode("latin-1")
        body = received.partition(b"\r\n\r\n")[2].strip()
        if received.startswith(b"HTTP/1.") and status < "400" and (body or path not in ALIVE):
            yield f"{address} {name}: {method} {path} -> {status}"
    received = answer(address, context, PREFACE)
    if received[3:4] == b"\x04":  # a SETTINGS frame: the server talks gRPC to strangers
        yield f"{address} {name}: HTTP/2 is answered"


def shell(weed, address):
    """SeaweedFS's own client, without certificates, at a master whose gRPC port this might be."""
    if not address.isdigit():
        return
    script = b"volume.list\ncollection.delete -collection kept -force\nfs.ls /buckets\nfs.rm -rf /buckets/kept\nexit\n"
    try:
        command = [weed, "shell", f"-master=127.0.0.1:{int(address) - 10000}.{address}"]
        said = subprocess.run(command, input=script, capture_output=True, timeout=8, cwd="/").stdout
    except subprocess.TimeoutExpired as error:  # it waits for a master that never lets it in
        said = error.stdout or b""
    if b"kept" in said or b"Topology" in said:
        yield f"{address} weed shell: {said[:200]!r}"


def main():
    weed, scratch, *addresses = sys.argv[1:]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        waiting = [
            pool.submit(lambda *what: list(tried(*what)), address, name, context)
            for name, context in contexts(scratch)
            for address in addresses
        ]
        waiting += [pool.submit(lambda one: list(shell(weed, one)), address) for address in addresses]
        print("FOUND " + json.dumps([line for one in waiting for line in one.result()]))


main()
