"""What will happen: topology, rank tables, host files, node plans. Pure: touches no machine."""
