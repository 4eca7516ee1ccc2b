"""Exceptions and warnings that users may want to catch by name."""

from __future__ import annotations

import sys


class DGLError(Exception):
    """Raised where ``dgl.nn`` raises ``dgl.DGLError`` and DGL itself is not imported."""


class FallbackWarning(UserWarning):
    """A fused kernel could not be used on a GPU; the text says why and what to do."""


def dgl_error(message: str) -> Exception:
    """Build the error that DGL users expect.

    A user who has a ``DGLGraph`` has imported DGL and may write ``except dgl.DGLError``; a user
    without DGL must not be made to import it for an error class.

    Parameters
    ----------
    message : str
        Text of the error.

    Returns
    -------
    Exception
        An instance of ``dgl.DGLError`` when DGL is imported, else of :class:`DGLError`.
    """
    dgl = sys.modules.get("dgl")
    error_class = getattr(dgl, "DGLError", DGLError)
    return error_class(message)
