"""Who sums neighbour rows: our kernel, or cuSPARSE where that was measured to be faster.

A pure function, like those of ``choose.py``. cuSPARSE does not give the same bits in each run, so
it is left out unless the user allows for that, with ``dgl_flash.tune(..., repeatable=False)``, and
it was faster then. There is no rule of its own: on each of nine graphs on an H200, from road
networks to social ones, our kernel took 0.4 to 0.8 of the time of cuSPARSE in float32, and less in
bfloat16. ``benchmarks/spmm_choice.py`` measures that again.
"""

from __future__ import annotations

from dataclasses import dataclass

KERNEL, CUSPARSE = "kernel", "cusparse"
MOST_COLUMNS = 2**16  # of the dense operands; nothing wider was ever tried


@dataclass(frozen=True)
class Sum:
    """What is to be summed.

    Attributes
    ----------
    width, itemsize : int
        Elements of a row, and bytes an element.
    weights : int
        Edge weights of a row: none, one, or one for each of its parts.
    scaled : bool
        Whether there are factors of nodes, or a mean.
    """

    width: int
    itemsize: int
    weights: int = 0
    scaled: bool = False


def can_be_cusparse(call: Sum) -> bool:
    """Whether a product with one sparse matrix is the sum that is wanted."""
    return call.weights <= 1 and not call.scaled and 0 < call.width <= MOST_COLUMNS


def spmm_backend(call: Sum, *, repeatable: bool, tuned: str | None = None) -> str:
    """Choose who sums.

    Parameters
    ----------
    call : Sum
        What is to be summed.
    repeatable : bool
        Whether each run has to give the same bits.
    tuned : str, optional
        What was faster on this machine, where that was measured.

    Returns
    -------
    str
        :data:`KERNEL` or :data:`CUSPARSE`.
    """
    if repeatable or not can_be_cusparse(call):
        return KERNEL
    return tuned or KERNEL
