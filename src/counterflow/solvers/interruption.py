"""What an interruption from the keyboard leaves behind."""

from typing import Any


class RunInterrupted(KeyboardInterrupt):
    """A comparison or prediction that was interrupted; `result` holds the records it made."""

    def __init__(self, message: str, result: Any):
        super().__init__(message)
        self.result = result
