"""Docstrings for the reference: one example is to be shown as several are, as code."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Reads the section `Example:` of a docstring as the `Examples:` that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
