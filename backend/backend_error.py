"""What goes wrong before a framework can be used."""

from __future__ import annotations


class BackendError(ValueError):
    """No backend can be used, or not this one; the message names the next step."""
