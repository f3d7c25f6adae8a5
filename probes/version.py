"""The version of kvscope, its engine and its probes: read by the build and by `kvscope --version`."""

__version__ = "0.2.0"
