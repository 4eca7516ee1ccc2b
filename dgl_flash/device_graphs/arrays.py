"""Tensors of a device on their way into DGL's C code and out of it.

Ids go in from the home of a graph and come out to it. Three things have a home: index objects,
their parts, and arrays that were made from tensors of that device. Whatever a C function makes of
one that has a home, has it too; so the rule needs no list of DGL's functions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dgl_flash.structure.fence import copy_to_device
from dgl_flash.structure.homes import home_of, set_home

_TARGET = "_dgl_flash_target"
_MOST_REMEMBERED = 2**22  # bytes
# Tensor of a device -> the same on the host, and the version of the former. No attribute of the
# tensor, which its copies and pickles would have as well.
_host_copies = WeakTensorKeyDictionary()


# What C functions take and give mostly, and what never has a home; they are called a hundred times
# a batch.
PLAIN = frozenset({int, str, bool, float, type(None)})


def home_among(arguments: Any) -> torch.device | None:
    """The first home among the arguments of a C function."""
    for value in arguments:
        if type(value) in PLAIN:
            continue
        home = home_among(value) if isinstance(value, (list, tuple)) else home_of(value)
        if home is not None:
            return home
    return None


class Conversions:
    """Tensors to DGL's arrays and back, over the host where a device is involved.

    Parameters
    ----------
    backend : module
        ``dgl.backend`` with the conversions of this DGL, which know the host.
    """

    def __init__(self, backend: Any) -> None:
        self._to_array = backend.zerocopy_to_dgl_ndarray
        self._to_array_for_write = backend.zerocopy_to_dgl_ndarray_for_write
        self._from_array = backend.zerocopy_from_dgl_ndarray
        self._arange = backend.arange

    def to_array(self, data: Tensor) -> Any:
        """Read-only."""
        if data.device.type == "cpu":
            return self._to_array(data)
        return set_home(self._to_array(host_copy(data)), data.device)

    def to_array_for_write(self, data: Tensor) -> Any:
        """What C code writes reaches a tensor on a device by :func:`write_back`."""
        if data.device.type == "cpu":
            return self._to_array_for_write(data)
        copy = _download(data).contiguous()
        array = set_home(self._to_array_for_write(copy), data.device)
        vars(array)[_TARGET] = data, copy
        return array

    def from_array(self, array: Any) -> Tensor:
        """On the home of the array."""
        data: Tensor = self._from_array(array)
        home = home_of(array)
        # DGL makes an empty tensor anew, where the array is said to be: there is nothing to copy.
        return data if home in (None, data.device) else upload(data, home)

    def arange(self, start: int, stop: int, *given: Any, **named: Any) -> Tensor:
        """All ids of a graph, which are asked for in order to ask something of all of them."""
        made: Tensor = self._arange(start, stop, *given, **named)
        if made.device.type != "cpu" and made.nbytes <= _MOST_REMEMBERED:
            _remember(made, torch.arange(start, stop, dtype=made.dtype))
        return made


def upload(data: Tensor, device: torch.device) -> Tensor:
    """Copy ids from the host; those of blocks without waiting for the device."""
    made = copy_to_device(data, device)
    _remember(made, data)
    return made


def host_copy(data: Tensor, whatever_size: bool = False) -> Tensor:
    """A tensor on the host: what it came from, as long as nobody has written to it.

    Samplers pass on what they were given. To copy it back would wait for all that the device does.

    Parameters
    ----------
    data : Tensor
        On any device.
    whatever_size : bool
        Remember the copy of a long tensor, too.

    Returns
    -------
    Tensor
        Not to be written to.
    """
    if data.device.type == "cpu":
        return data
    known = _host_copies.get(data)
    if known is not None and known[1] == data._version:
        host: Tensor = known[0]
        return host
    host = _download(data)
    _remember(data, host, whatever_size)
    return host


def _download(data: Tensor) -> Tensor:
    return data.detach().cpu()


def _remember(data: Tensor, host: Tensor, whatever_size: bool = False) -> None:
    # Tensors of inference mode have no version, so that nobody could tell whether they changed.
    if (whatever_size or host.nbytes <= _MOST_REMEMBERED) and not data.is_inference():
        _host_copies[data] = host, data._version


def write_back(arguments: Any) -> None:
    """Copy what C code has written to the tensors that stand behind its arguments."""
    for value in arguments:
        if type(value) in PLAIN:
            continue
        if isinstance(value, (list, tuple)):
            write_back(value)
        elif (target := getattr(value, "__dict__", {}).get(_TARGET)) is not None:
            with torch.no_grad():
                target[0].copy_(target[1])
