"""Checking out: a tree into a directory, and a workspace to another tree."""

from cas.checkout.fresh import checkout
from cas.checkout.result import CheckedOut
from cas.checkout.update import update

__all__ = ["CheckedOut", "checkout", "update"]
