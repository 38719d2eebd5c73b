"""Make a text from anywhere safe to print: a folder's name or a test's id may hold any character."""


def printable(text: str) -> str:
    """Replace line breaks, terminal escapes and every other character that is not printable by `?`."""
    if text.isprintable():  # as nearly every text is
        return text
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def visible(text: str) -> str:
    """Show every character that is not printable by its code, as in `\\n`: two different texts stay different."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text
    )
