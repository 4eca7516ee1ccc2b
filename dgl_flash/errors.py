"""Exceptions and warnings that users may want to catch by name."""

from __future__ import annotations

import sys
import warnings


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


def dgl_warning(message: str, stacklevel: int = 2) -> None:
    """Warn as DGL does.

    Parameters
    ----------
    message : str
        Text of the warning, which is a ``dgl.base.DGLWarning`` when DGL is imported, so that
        filters for that class keep working, else a UserWarning, which that class derives from.
    stacklevel : int
        As in ``warnings.warn``, counted from the caller.
    """
    base = sys.modules.get("dgl.base")
    category = getattr(base, "DGLWarning", UserWarning)
    warnings.warn(message, category=category, stacklevel=stacklevel + 1)
