"""What a vLLM beside kvscope loads by its entry point (``vllm.stat_logger_plugins``): `probes.attach_vllm`.

It stands here because a process of somebody else may have another package named `probes`.
"""

from probes.attach_vllm import StatLogger

__all__ = ["StatLogger"]
