"""The error of a check that cannot be made."""

from __future__ import annotations


class CheckError(Exception):
    """A model cannot be checked as asked; the text says what to do about it."""
