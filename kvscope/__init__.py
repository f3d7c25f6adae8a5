"""kvscope: why a smaller KV cache did not make the service faster."""
