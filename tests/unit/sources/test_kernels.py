"""The rules that say what a kernel or an operator is: complete, and right about well-known names."""

from __future__ import annotations

import pytest

from kvscope.sources.trace import rules as kernel_rules
from kvscope.sources.trace.events import Trait
from probes.catalog import CATALOG


def test_every_kind_of_work_goes_to_a_counter_of_the_catalogue() -> None:
    rules = kernel_rules.load()
    for work, metric in rules.metrics.items():
        assert (work == kernel_rules.UNKNOWN and metric == "") or CATALOG[metric].kind == "counter", work


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>", "attend"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "attend"),
        ("void vllm::paged_attention_v2_kernel<uint16_t>", "attend"),
        ("kernel_unified_attention_2d", "attend"),
        ("void vllm::reshape_and_cache_flash_kernel<bf16>", "gather"),
        ("nvjet_hsh_128x64_64x8_2x1_v_bz_TNT", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>", "gemm"),
        ("void gemvNSP_kernel<bf16>", "gemm"),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "collective"),
        ("void vllm::cross_device_reduce_1stage<bf16, 8>", "collective"),
        ("void vllm::rms_norm_kernel<bf16>", "norm"),
        ("void at::native::sbtopk::gatherTopK<bf16>", "index"),
        ("void at::native::vectorized_elementwise_kernel<8>", "elementwise"),
        ("triton_poi_fused_mul_silu_0", "elementwise"),
        ("void dequantize_4bit<bf16>", "dequantise"),
        ("Memcpy HtoD (Pinned -> Device)", "copy_h2d"),
        ("Memcpy DtoH (Device -> Pageable)", "copy_d2h"),
        ("Memcpy DtoD (Device -> Device)", "copy_d2d"),
        ("void at::native::softmax_warp_forward<float>", "attend"),
        ("deep_gemm::fp8_paged_mqa_logits", "index"),
    ],
)
def test_well_known_kernels_are_known(name: str, work: str) -> None:
    found = kernel_rules.load().kernel(name)
    assert found is not None
    assert found.work == work


def test_well_known_operators_are_known() -> None:
    rules = kernel_rules.load()
    assert rules.op("vllm::unified_attention_with_output", Trait()) == ("attend", False)
    assert rules.op("aten::_int_mm", Trait()) is not None
    assert rules.op("mystery::thing", Trait()) is None
