"""The version of kvscope, read by the build and by `kvscope --version`."""

__version__ = "0.1.0"
