"""The figures and the table of the paper, one file each."""
