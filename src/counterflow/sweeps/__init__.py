"""Many runs at once: planned in a file, carried out on a cluster, read back as one."""
