"""Numbers as people read them."""


def readable_bytes(count: float) -> str:
    """Write a number of bytes the way people read it: 1.5 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
