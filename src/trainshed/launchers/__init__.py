"""One file per framework: which processes start on a node, and how they find each other."""
