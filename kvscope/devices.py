"""GPUs by name: memory, bandwidth, peak arithmetic, each with where the figure stands.

``find("H200")``, ``find("NVIDIA H100 80GB HBM3")``, ``find("A100-80")``: nearest name, or UsageError with the closest
ones. Bandwidth and peaks are the makers' (dense, no sparsity); what a card reaches lies some 5 to 10 % below.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kvscope.errors import UsageError, nearest

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Device:
    """``memory_bytes`` as a program sees it, within about 1 %; FLOP/s dense, ``fp8`` 0 without such units."""

    name: str
    memory_bytes: int
    bandwidth: float
    bf16: float
    fp8: float
    source: str
    aliases: tuple[str, ...] = field(default=())

    def flops(self, bits: float = 16) -> float:
        """Peak FLOP/s for weights of so many bits: 8-bit units where they are, else 16-bit ones."""
        return self.fp8 if bits <= 8 and self.fp8 else self.bf16


def _card(name: str, gib: float, tb_s: float, tflops: float, fp8: float, source: str, *aliases: str) -> Device:
    return Device(name, round(gib * GIB), tb_s * 1e12, tflops * 1e12, fp8 * 1e12, source, aliases)


DEVICES = (
    _card("GB300", 278, 8.0, 2500, 5000, "NVIDIA GB300 NVL72 data sheet, per GPU", "GB300-288"),
    _card("B300", 268, 8.0, 2250, 4500, "NVIDIA HGX B300 data sheet, per GPU", "B300-SXM"),
    _card("GB200", 184, 8.0, 2500, 5000, "NVIDIA GB200 NVL72 data sheet, per GPU"),
    _card("B200", 178, 7.7, 2250, 4500, "NVIDIA HGX B200 data sheet, per GPU", "B200-SXM"),
    _card("GH200", 94.5, 4.0, 989.4, 1978.9, "NVIDIA GH200 data sheet, 96 GB", "GH200-96"),
    _card("GH200-144", 140, 4.9, 989.4, 1978.9, "NVIDIA GH200 data sheet, 144 GB"),
    _card("H200", 139.8, 4.8, 989.4, 1978.9, "NVIDIA H200 data sheet, SXM", "H200-141", "H200-SXM"),
    _card("H200-NVL", 139.8, 4.8, 835.5, 1671, "NVIDIA H200 data sheet, NVL"),
    _card("H100", 79.65, 3.35, 989.4, 1978.9, "NVIDIA H100 data sheet, SXM", "H100-80", "H100-SXM", "H100 80GB HBM3"),
    _card("H100-PCIe", 79.65, 2.0, 756.5, 1513, "NVIDIA H100 data sheet, PCIe"),
    _card("H100-NVL", 93.6, 3.9, 835.5, 1671, "NVIDIA H100 data sheet, NVL", "H100-94"),
    _card("H800", 79.65, 3.35, 989.4, 1978.9, "NVIDIA H800, as H100 SXM in memory and arithmetic", "H800-80"),
    _card("H20", 95.6, 4.0, 148, 296, "NVIDIA H20 product brief", "H20-96"),
    _card("A100-80", 79.3, 2.039, 312, 0, "NVIDIA A100 data sheet, 80 GB SXM", "A100", "A100-SXM4-80GB", "A800"),
    _card("A100-80-PCIe", 79.3, 1.935, 312, 0, "NVIDIA A100 data sheet, 80 GB PCIe", "A100 80GB PCIe"),
    _card("A100-40", 39.4, 1.555, 312, 0, "NVIDIA A100 data sheet, 40 GB", "A100-SXM4-40GB", "A100-PCIE-40GB"),
    _card("A40", 44.6, 0.696, 149.7, 0, "NVIDIA A40 data sheet"),
    _card("A30", 23.6, 0.933, 165, 0, "NVIDIA A30 data sheet"),
    _card("A10", 22.5, 0.6, 125, 0, "NVIDIA A10 data sheet", "A10-24"),
    _card("A10G", 22.1, 0.6, 70, 0, "NVIDIA A10G, AWS G5"),
    _card("L40S", 44.6, 0.864, 362, 733, "NVIDIA L40S data sheet"),
    _card("L40", 44.6, 0.864, 181, 362, "NVIDIA L40 data sheet"),
    _card("L20", 44.6, 0.864, 119.5, 239, "NVIDIA L20 product brief"),
    _card("L4", 22.5, 0.3, 121, 242, "NVIDIA L4 data sheet, dense"),
    _card("T4", 14.75, 0.32, 65, 0, "NVIDIA T4 data sheet (fp16)", "Tesla T4"),
    _card("V100-32", 31.7, 0.9, 125, 0, "NVIDIA V100 data sheet (fp16)", "V100-SXM2-32GB"),
    _card("V100-16", 15.8, 0.9, 125, 0, "NVIDIA V100 data sheet (fp16)", "V100", "V100-SXM2-16GB"),
    _card("RTX-PRO-6000", 94.97, 1.792, 503.8, 1007.6, "NVIDIA RTX PRO 6000 Blackwell data sheet", "RTX 6000 Pro"),
    _card("RTX-PRO-5000", 47.4, 1.344, 300, 600, "NVIDIA RTX PRO 5000 Blackwell data sheet, dense"),
    _card("RTX-6000-Ada", 47.5, 0.96, 364.2, 728.5, "NVIDIA RTX 6000 Ada data sheet, dense"),
    _card("RTX-A6000", 47.5, 0.768, 154.8, 0, "NVIDIA RTX A6000 data sheet, dense"),
    _card("RTX-5090", 31.4, 1.792, 209.5, 419, "NVIDIA Blackwell GeForce white paper, fp32 accumulation"),
    _card("RTX-5080", 15.5, 0.96, 112.6, 225.1, "NVIDIA Blackwell GeForce white paper, fp32 accumulation"),
    _card("RTX-5070-Ti", 15.5, 0.896, 87.9, 175.8, "NVIDIA Blackwell GeForce white paper, fp32 accumulation"),
    _card("RTX-4090", 23.5, 1.008, 165.2, 330.3, "NVIDIA Ada white paper, fp32 accumulation"),
    _card("RTX-4080", 15.6, 0.717, 97.5, 194.9, "NVIDIA Ada white paper, fp32 accumulation"),
    _card("RTX-4060", 7.6, 0.272, 30.2, 60.5, "NVIDIA Ada white paper, fp32 accumulation"),
    _card("RTX-3090", 23.6, 0.936, 71, 0, "NVIDIA GA102 white paper, fp32 accumulation"),
    _card("RTX-3080", 9.6, 0.76, 59.5, 0, "NVIDIA GA102 white paper, fp32 accumulation"),
    _card("RTX-3060", 11.6, 0.36, 25.6, 0, "NVIDIA GA106, fp32 accumulation"),
    _card("RTX-2080-Ti", 10.7, 0.616, 53.8, 0, "NVIDIA Turing white paper (fp16, fp32 accumulation)"),
    _card("DGX-Spark", 119.6, 0.273, 125, 250, "NVIDIA DGX Spark data sheet (GB10), dense", "GB10"),
    _card("Jetson-Thor", 122.8, 0.273, 258, 517, "NVIDIA Jetson Thor data sheet, dense"),
    _card("MI355X", 287.6, 8.0, 2516.6, 5033.2, "AMD Instinct MI355X data sheet", "MI355"),
    _card("MI350X", 287.6, 8.0, 2306.9, 4613.7, "AMD Instinct MI350X data sheet", "MI350"),
    _card("MI325X", 255.6, 6.0, 1307.4, 2614.9, "AMD Instinct MI325X data sheet", "MI325"),
    _card("MI300X", 191.6, 5.3, 1307.4, 2614.9, "AMD Instinct MI300X data sheet", "MI300"),
    _card("MI250X", 63.6, 1.638, 191.5, 0, "AMD Instinct MI250X data sheet, one of its two dies", "MI250"),
    _card("RX-7900-XTX", 23.6, 0.96, 122.8, 0, "AMD Radeon RX 7900 XTX data sheet"),
    _card("Gaudi-3", 127, 3.7, 1835, 1835, "Intel Gaudi 3 white paper", "Gaudi3"),
    _card("Arc-B580", 11.9, 0.456, 116.5, 0, "Intel Arc B580 data sheet, XMX fp16"),
)


def find(name: str, option: str = "--gpu") -> Device:
    """Return the card of that name, its longest known name winning; UsageError with the nearest."""
    wanted = _plain(name)
    table = {_plain(label): one for one in DEVICES for label in (one.name, *one.aliases)}
    if wanted in table:
        return table[wanted]
    inside = [label for label in table if re.search(rf"(?<![a-z0-9]){re.escape(label)}(?![a-z0-9])", wanted)]
    if inside:
        return table[max(inside, key=len)]
    names = [one.name for one in DEVICES]
    close = nearest(name.upper(), names)
    raise UsageError(f"{option} {name!r}{close}: not in the table; known: {', '.join(names)}; or give --memory")


def _plain(name: str) -> str:
    """Lower case, makers' words left out, one kind of separator."""
    words = re.sub(r"(?i)\b(nvidia|amd|intel|tesla|geforce|instinct|radeon|graphics)\b", " ", name)
    return "-".join(re.findall(r"[a-z0-9]+", words.lower()))
