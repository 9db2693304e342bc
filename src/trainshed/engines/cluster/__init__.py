"""What engines share: leases, containers, what a node sees, how an attempt ends."""
