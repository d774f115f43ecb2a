"""The command line: `counterflow`."""

from .main import main as main, run as run
