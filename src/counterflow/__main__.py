"""`python -m counterflow` is the command `counterflow`."""

from .cli import run

if __name__ == "__main__":
    run()
