"""Latent attention: one row a token that all query heads share, whose first part is the value as well.

MLA keeps every token's row and reads all of them; DSA also keeps a small key beside each row, by which it chooses
rows; DeepSeek V4 keeps rows that stand for 4 or 128 tokens each, and the last tokens' own. `shape` says which is
which, `pool` holds rows and keys in pages, `readers` choose and read them with plain torch or on an NVIDIA device.
"""
