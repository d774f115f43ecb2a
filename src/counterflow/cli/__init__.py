"""The command line: `counterflow`."""
