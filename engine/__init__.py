"""The built-in reference engine: paged KV, block-sparse attention, tiers and continuous batching."""
