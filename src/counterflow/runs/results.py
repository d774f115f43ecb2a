"""Results that survive: each is on disk as soon as it is known, and found again by the next run."""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

from .environment import environment
from .states import sync_folder


class ResultsFile:
    """A JSON file of named results for one configuration, rewritten atomically at every change.

    A file that belongs to another configuration or to other versions, or that is damaged, is kept
    under another name, not mixed in.

    Args:
        path: The file, made with its folder at the first result.
        configuration: Everything the results depend on, as JSON values.
    """

    def __init__(self, path: Path, configuration: dict[str, Any]):
        self.path = path
        # As it will read back, so that tuples compare equal to lists.
        self._header = json.loads(
            json.dumps({"configuration": configuration, "environment": environment()})
        )
        self.results: dict[str, Any] = self._load()

    def _load(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            same = {key: stored[key] for key in self._header} == self._header
            results = stored["results"]
        except (ValueError, KeyError, TypeError):
            same, results = False, {}
        if not same:
            name = sha256(self.path.read_bytes()).hexdigest()[:8]
            self.path.replace(self.path.with_suffix(f".{name}{self.path.suffix}"))
            return {}
        return results

    def add(self, name: str, result: Any) -> None:
        """Stores a result: it is safe on disk when this returns."""
        self.results[name] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_suffix(self.path.suffix + ".part")
        with aside.open("w", encoding="utf-8") as file:
            json.dump(self._header | {"results": self.results}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path)
        sync_folder(self.path.parent)
