"""Payloads and topics."""

SAID = "/Room/Said"


def said(name, text):
    """Put a payload together."""
    return {"name": name, "text": text}
