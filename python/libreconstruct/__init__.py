"""A video becomes a 3D Gaussian scene."""

from ._native import version

__version__ = version()
__all__ = ["version"]
