"""The rendezvous server of ranks that were started without horovodrun: Horovod's own, on a given port.

Run by the job's own Python: `python -m trainshed_rendezvous ADDRESS PORT host:slots,host:slots`.
"""

import socketserver
import sys

from horovod.runner.common.util.hosts import (  # type: ignore[import-not-found,unused-ignore]
    get_host_assignments,
    parse_hosts,
)
from horovod.runner.http.http_server import (  # type: ignore[import-not-found,unused-ignore]
    RendezvousHandler,
    RendezvousHTTPServer,
)


class Server(RendezvousHTTPServer):  # type: ignore[misc,unused-ignore]
    # All ranks come at once; the default of 5 would turn some away.
    request_queue_size = 1024
    allow_reuse_address = True

    def server_bind(self) -> None:
        """As HTTPServer's, without asking a name server who we are: that may take long to fail."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]


def main() -> None:
    address, port, hosts = sys.argv[1:]
    parsed = parse_hosts(hosts)
    server = Server((address, int(port)), RendezvousHandler, 0)
    server.init(get_host_assignments(parsed, sum(host.slots for host in parsed)))
    server.serve_forever()


if __name__ == "__main__":
    main()
