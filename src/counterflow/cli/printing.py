"""Text for terminals and logs, which obey some of what they read: names may hold anything."""

from unicodedata import category

from rich.console import Console

# Control characters, those that turn the direction of writing, halves of pairs, line separators.
_OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str) -> str:
    r"""Text in which whatever a terminal would obey is written out; lines and tabs stay.

    >>> printable("red \x1b[31m, turned \u202e, one\n  two")
    'red \\x1b[31m, turned \\u202e, one\n  two'
    """
    return "".join(
        character.encode("unicode_escape").decode()
        if category(character) in _OBEYED and character not in "\n\t"
        else character
        for character in text
    )


def has_control_characters(text: str) -> bool:
    """Whether a text holds what is no character to be seen."""
    return any(category(character) == "Cc" for character in text)


def say(console: Console, text: str) -> None:
    """Prints text as it is, in lines of any length."""
    console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


def can_be_drawn_on(console: Console) -> bool:
    """Whether a console can show what changes: a terminal, and not one that only takes lines."""
    return console.is_terminal and not console.is_dumb_terminal
