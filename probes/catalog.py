"""Every canonical metric: its name, kind, unit, help and labels. A name published here is hard to take back.

Kinds: ``counter`` only grows (cumulative since the engine started), ``gauge`` is a state, ``observation`` is one value
per finished request, ``info`` is always 1 and carries labels. A histogram of an engine's page arrives as the
observation's name with ``.bucket`` (label ``le``), ``.sum`` and ``.count``.
"""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """One line of the catalogue; ``unit`` is the unit of a sample's value."""

    name: str
    kind: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()


COUNTER = "counter"
_C, _G, _O = COUNTER, "gauge", "observation"
SAID = ("setting", "value", "source")
"""Labels of a setting as it was said: its canonical name (or the engine's own), its spelling, and by whom."""

_METRICS = (
    # Where a step's time goes. Decode time is the sum of the parts below it; what is left is unaccounted.
    Metric("time.step", _C, "s", "Wall time inside engine steps, prefill and decode together."),
    Metric("time.idle", _C, "s", "Time between steps in which there was nothing to run."),
    Metric("time.decode", _C, "s", "Step time spent on decode: time.step less time.prefill."),
    Metric(
        "time.decode_timed",
        _C,
        "s",
        "Decode time of steps timed by part; the parts of the others are taken to be the last timed step's shares.",
    ),
    Metric("time.host", _C, "s", "Decode: scheduling, preparing inputs, settling results."),
    Metric("time.linear", _C, "s", "Decode: reading and multiplying weights (projections, MLP, logits)."),
    Metric("sparse.index_time", _C, "s", "Decode: scoring block representatives and choosing the blocks to read."),
    Metric(
        "time.gather",
        _C,
        "s",
        "Decode: collecting the chosen KV entries before attention (0 where the kernel reads in place).",
    ),
    Metric("time.attend", _C, "s", "Decode: attention itself; includes the read where the kernel reads in place."),
    Metric("decompress.time", _C, "s", "Decode: turning cold KV back into computable form as a separate operation."),
    Metric("tier.transfer_time", _C, "s", "Decode: moving KV between forms, and to and from a slower tier."),
    Metric("time.sample", _C, "s", "Decode: choosing the next token."),
    Metric("time.prefill", _C, "s", "Step time spent on prefill."),
    Metric("prefill.decompress_time", _C, "s", "Prefill: turning cold KV back into computable form."),
    # Work done.
    Metric("batch.steps", _C, "steps", "Engine steps."),
    Metric("batch.decode_steps", _C, "steps", "Engine steps that decoded at least one token."),
    Metric("batch.mixed_steps", _C, "steps", "Engine steps that prefilled one request while others decoded."),
    Metric("batch.tokens_per_step", _O, "tokens", "Tokens computed in a step."),
    Metric("batch.requests_per_step", _O, "requests", "Requests in a step's batch."),
    Metric("batch.read_bytes", _C, "B", "Bytes one device reads in steps, as the engine itself works them out."),
    Metric("batch.operations", _C, "FLOP", "Operations of one device in steps, as the engine itself works them out."),
    Metric("batch.context_tokens", _G, "tokens", "Mean context length of the requests in the decode batch."),
    Metric("tokens.generated", _C, "tokens", "Output tokens."),
    Metric("tokens.prompt", _C, "tokens", "Prompt tokens, found in the prefix cache or computed."),
    Metric("tokens.prefilled", _C, "tokens", "Prompt tokens computed (not found in the prefix cache)."),
    Metric("tokens.recomputed", _C, "tokens", "Tokens recomputed after a preemption."),
    Metric("requests.finished", _C, "requests", "Requests that ended."),
    Metric("requests.errors", _C, "requests", "Requests that failed."),
    Metric("requests.cancelled", _C, "requests", "Requests given up by their clients before they ended."),
    Metric("prefix.queries", _C, "tokens", "Prompt tokens looked up in the prefix cache."),
    Metric("prefix.hits", _C, "tokens", "Prompt tokens found in the prefix cache."),
    Metric("prefix.matched", _C, "tokens", "Prompt tokens that a cached prefix shares, restored from it or not."),
    Metric("prefix.hits_by_tier", _C, "tokens", "Prompt tokens found in a cache, by the tier they lay in.", ("tier",)),
    # The scheduler.
    Metric("sched.running", _G, "requests", "Requests admitted and not finished."),
    Metric("sched.waiting", _G, "requests", "Requests not yet admitted."),
    Metric("sched.deferred", _G, "requests", "Requests waiting for a reason other than capacity."),
    Metric("sched.max_running", _G, "requests", "Most requests the scheduler may run at once, as configured."),
    Metric("sched.paused", _G, "requests", "Requests taken out of the batch, their KV kept."),
    Metric("sched.swapped", _G, "requests", "Requests whose KV was moved to the host to make room."),
    Metric("sched.fetching", _G, "requests", "Waiting requests whose KV is being loaded.", ("stage",)),
    Metric("sched.rejections", _C, "requests", "Requests turned away at the door."),
    Metric("sched.preempted_tokens", _C, "tokens", "Tokens whose KV was lost to a preemption."),
    Metric("sched.kv_bound_steps", _C, "steps", "Steps in which a request waited for KV blocks."),
    Metric("sched.cap_bound_steps", _C, "steps", "Steps in which a request waited while the most that may run ran."),
    Metric(
        "sched.budget_bound_steps", _C, "steps", "Steps that used up the tokens a step may compute, with more to do."
    ),
    Metric("sched.deferred_steps", _C, "steps", "Steps in which requests waited only for reasons other than capacity."),
    Metric("sched.preemptions", _C, "events", "Running requests put back, losing their KV."),
    Metric("sched.swaps", _C, "events", "Preemptions that sent the KV to the host instead of dropping it."),
    Metric("sched.audits", _C, "events", "Times the engine checked its own books between steps."),
    Metric("sched.queue_time", _O, "s", "Arrival to first scheduling, per request."),
    # KV memory.
    Metric("kv.resident_bytes", _G, "B", "Bytes holding live KV: pages, scales, representatives, tables."),
    Metric("kv.overhead_bytes", _G, "B", "The part of kv.resident_bytes that is scales, representatives and tables."),
    Metric("kv.reserved_bytes", _G, "B", "Bytes the pool holds from the device."),
    Metric("kv.assumed_bytes", _G, "B", "KV bytes admission counts for the running requests."),
    Metric("kv.bytes_per_token_assumed", _G, "B", "KV bytes of one token as admission counts it."),
    Metric("kv.bytes_per_token_measured", _G, "B", "Resident KV bytes divided by tokens held."),
    Metric("kv.usage_ratio", _G, "ratio", "Share of the pool that live requests hold, 0 to 1."),
    Metric("kv.capacity_tokens", _G, "tokens", "Tokens the pool can hold, at full precision."),
    Metric("kv.used_tokens", _G, "tokens", "Tokens held in the pool."),
    Metric(
        "kv.entries",
        _G,
        "entries",
        "KV entries stored, mean over layers; below kv.used_tokens where entries are evicted.",
    ),
    Metric("kv.budget_tokens", _G, "tokens", "Tokens admission counts for the batch at worst; not what it holds."),
    Metric("kv.capacity_blocks", _G, "blocks", "Blocks of the pool."),
    Metric("kv.used_blocks", _G, "blocks", "Blocks that live requests hold."),
    Metric("kv.block_size", _G, "tokens", "Tokens per block."),
    Metric("kv.bytes_per_layer", _G, "B", "Resident KV bytes of one layer.", ("layer",)),
    Metric("kv.hot_entries", _G, "entries", "Entries of one layer at full precision.", ("layer",)),
    Metric("kv.cold_entries", _G, "entries", "Entries of one layer in the cold form.", ("layer",)),
    Metric("kv.free_bytes", _G, "B", "Bytes of the pool that hold no page."),
    Metric("kv.stranded_bytes", _G, "B", "Free bytes that cannot take new tokens: another form's, or holes."),
    Metric("kv.largest_free_run_bytes", _G, "B", "Longest stretch of free bytes that can take new tokens in a row."),
    Metric("kv.unusable_failures", _C, "events", "Allocations that failed although enough bytes were free in total."),
    Metric("kv.evictable_tokens", _G, "tokens", "Tokens of cached prefixes that no running request uses."),
    Metric("kv.free_tokens", _G, "tokens", "Tokens of the pool that hold nothing at all."),
    Metric("batch.longest_context", _G, "tokens", "Longest context seen since the engine started."),
    Metric("kv.pool_usage_ratio", _G, "ratio", "As kv.usage_ratio, one pool of a hybrid model.", ("pool",)),
    Metric("kv.pool_capacity_tokens", _G, "tokens", "As kv.capacity_tokens, one pool of a hybrid model.", ("pool",)),
    Metric("kv.pool_used_tokens", _G, "tokens", "As kv.used_tokens, one pool of a hybrid model.", ("pool",)),
    Metric("kv.pool_evictable_tokens", _G, "tokens", "As kv.evictable_tokens, one pool of a hybrid model.", ("pool",)),
    Metric("cache.evictions", _C, "events", "Blocks dropped by the policy or the prefix cache."),
    Metric("cache.evicted_tokens", _C, "tokens", "Tokens dropped from the prefix cache."),
    Metric("cache.dropped_tokens", _C, "tokens", "Tokens dropped without a copy in a slower tier."),
    Metric("block.lifetime", _O, "s", "Allocation to eviction of a block; only evicted blocks are seen."),
    Metric("block.idle", _O, "s", "Last use to eviction of a block; only evicted blocks are seen."),
    Metric("block.reuse_gap", _O, "s", "Gap between two uses of a block."),
    # Sparsity and tiers.
    Metric("sparse.kept_share_target", _G, "ratio", "Share of the entries a decode step is asked to read, 0 to 1."),
    Metric("sparse.entries_read", _C, "entries", "KV entries decode read, mean over layers."),
    Metric(
        "sparse.entries_total", _C, "entries", "KV entries decode would have read without a policy, mean over layers."
    ),
    Metric("sparse.layer_entries_read", _C, "entries", "KV entries one layer's decode read.", ("layer",)),
    Metric("sparse.layer_entries_total", _C, "entries", "KV entries one layer's decode would have read.", ("layer",)),
    Metric("tier.hot_accesses", _C, "accesses", "Block reads of decode served at full precision, all layers."),
    Metric("tier.cold_accesses", _C, "accesses", "Block reads of decode served from the cold form, all layers."),
    Metric("tier.layer_hot_accesses", _C, "accesses", "Hot block reads of one layer.", ("layer",)),
    Metric("tier.layer_cold_accesses", _C, "accesses", "Cold block reads of one layer.", ("layer",)),
    # Between full precision and a cold form, where the pool lies.
    Metric("precision.promotions", _C, "events", "Blocks moved from cold to hot."),
    Metric("precision.demotions", _C, "events", "Blocks moved from hot to cold."),
    Metric("precision.repromotions", _C, "events", "Blocks made hot within 16 steps of having been made cold."),
    Metric("precision.refusals", _C, "events", "Blocks that were to become cold, but the cold form had no room."),
    Metric("precision.bytes_in", _C, "B", "Bytes written at full precision of blocks that were cold."),
    Metric("precision.bytes_out", _C, "B", "Bytes written in a cold form of blocks that were hot."),
    Metric("precision.promote_time", _C, "s", "Time of making cold blocks hot, in steps or between them."),
    Metric("precision.demote_time", _C, "s", "Time of making hot blocks cold, in steps or between them."),
    # A slower tier behind the pool: host memory, disk, a shared store. Its transfers may overlap with compute.
    Metric("tier.bytes_in", _C, "B", "Bytes moved toward the hot tier."),
    Metric("tier.bytes_out", _C, "B", "Bytes moved away from the hot tier."),
    Metric("tier.queries", _C, "tokens", "Prompt tokens looked up in a slower tier."),
    Metric("tier.hits", _C, "tokens", "Prompt tokens found in a slower tier."),
    Metric("tier.tokens_in", _C, "tokens", "Tokens moved toward the hot tier."),
    Metric("tier.tokens_out", _C, "tokens", "Tokens moved away from the hot tier."),
    Metric("tier.blocks_in", _C, "blocks", "Blocks moved toward the hot tier."),
    Metric("tier.blocks_out", _C, "blocks", "Blocks moved away from the hot tier."),
    Metric("tier.load_time", _C, "s", "Time of transfers toward the hot tier, overlapped with compute or not."),
    Metric("tier.store_time", _C, "s", "Time of transfers away from the hot tier, overlapped with compute or not."),
    Metric(
        "tier.failures", _C, "events", "Loads, stores and allocations of a slower tier that failed or were dropped."
    ),
    Metric("tier.usage_ratio", _G, "ratio", "Share of a slower tier that holds KV, 0 to 1.", ("tier",)),
    Metric("tier.inflight_ratio", _G, "ratio", "Share of a slower tier pinned by transfers; says nothing of its fill."),
    Metric("tier.used_bytes", _G, "B", "Bytes of KV a slower tier holds.", ("tier",)),
    Metric("tier.capacity_bytes", _G, "B", "Bytes a slower tier can hold.", ("tier",)),
    Metric("tier.used_tokens", _G, "tokens", "Tokens a slower tier holds."),
    Metric("tier.capacity_tokens", _G, "tokens", "Tokens a slower tier can hold."),
    Metric("tier.pending", _G, "transfers", "Transfers between tiers that are not finished."),
    Metric("tier.lookup_time", _O, "s", "Looking up a request in a slower tier."),
    Metric("tier.block_lifetime", _O, "s", "As block.lifetime, in a slower tier."),
    Metric("tier.block_idle", _O, "s", "As block.idle, in a slower tier."),
    Metric("tier.block_reuse_gap", _O, "s", "As block.reuse_gap, in a slower tier."),
    Metric(
        "tier.refetches", _C, "blocks", "Blocks loaded from a slower tier within 16 steps of having been sent there."
    ),
    Metric("tier.prefetches", _C, "blocks", "Blocks loaded ahead, beside a step, for the next one."),
    Metric("tier.prefetch_hits", _C, "blocks", "Blocks loaded ahead that a later step did choose."),
    Metric("tier.stall_time", _C, "s", "Time that steps stood still for loads from a slower tier."),
    Metric("tier.link_limit", _G, "B/s", "Speed the link is held to by a knob; 0: the machine's own."),
    # Prefill and decode on different machines.
    Metric("disagg.transfer_time", _O, "s", "Moving the KV of a request from prefill to decode."),
    Metric("disagg.bytes", _O, "B", "KV bytes moved for a request from prefill to decode."),
    Metric("disagg.failures", _C, "events", "Transfers between prefill and decode that failed or expired."),
    Metric("disagg.queue", _G, "requests", "Requests at a stage between prefill and decode.", ("stage",)),
    # A router before engines.
    Metric("router.requests", _C, "requests", "Requests that a router sent to a worker.", ("worker",)),
    Metric("router.running", _G, "requests", "Requests that run on a worker, as its router sees it.", ("worker",)),
    Metric("router.waiting", _G, "requests", "Requests that wait before a worker, as its router sees it.", ("worker",)),
    Metric("router.kv_blocks", _G, "blocks", "KV blocks of a worker's requests, as its router counts.", ("worker",)),
    Metric("router.prefill_tokens", _G, "tokens", "Prompt tokens a worker has still to compute.", ("worker",)),
    # Speculative decoding.
    Metric("spec.drafts", _C, "rounds", "Rounds of drafting and checking."),
    Metric("spec.draft_tokens", _C, "tokens", "Tokens proposed."),
    Metric("spec.accepted_tokens", _C, "tokens", "Proposed tokens that were right."),
    # What a request saw.
    Metric("latency.ttft", _O, "s", "Arrival to first token, queue included."),
    Metric("latency.tpot", _O, "s", "(Last token − first token) / (output tokens − 1), one value per request."),
    Metric("latency.itl", _O, "s", "Gap between two consecutive tokens."),
    Metric("latency.e2e", _O, "s", "Arrival to last token."),
    Metric("latency.prefill_time", _O, "s", "First scheduling to first token."),
    Metric("latency.decode_time", _O, "s", "First token to last token."),
    Metric("latency.inference_time", _O, "s", "First scheduling to last token."),
    Metric("latency.step", _O, "s", "One engine step."),
    Metric(
        "time.prefill_requests", _C, "s", "Prefill time added up over requests, as an engine without a histogram tells."
    ),
    Metric(
        "time.decode_requests", _C, "s", "Decode time added up over requests, as an engine without a histogram tells."
    ),
    Metric("request.tokens_in", _O, "tokens", "Prompt tokens of a request."),
    Metric("request.tokens_out", _O, "tokens", "Output tokens of a request."),
    Metric("request.tokens_computed", _O, "tokens", "Prompt tokens of a request that were computed, not found cached."),
    Metric("request.preemptions", _O, "events", "Times a request was preempted."),
    Metric("request.prefix_hits", _O, "tokens", "Prompt tokens of a request found in the prefix cache."),
    Metric(
        "request.kv_bytes",
        _O,
        "B",
        "KV bytes of a request's blocks when it ended, as they were; blocks found in the prefix cache left out.",
    ),
    # Is the answer still right.
    Metric("quality.tokens_checked", _C, "tokens", "Generated tokens whose right value is known."),
    Metric("quality.tokens_right", _C, "tokens", "Generated tokens that were right."),
    Metric(
        "quality.later_tokens_checked", _C, "tokens", "Checked tokens of answers after a conversation's first question."
    ),
    Metric(
        "quality.later_tokens_right", _C, "tokens", "Right tokens of answers after a conversation's first question."
    ),
    Metric("quality.margin_tokens", _C, "tokens", "Generated tokens whose lead over the next best was looked at."),
    Metric("quality.margin_sum", _C, "logits", "Sum of those leads, in logits."),
    Metric("quality.narrow_tokens", _C, "tokens", "Of those tokens, the ones that led by less than one logit."),
    Metric("quality.shadow_requests", _C, "requests", "Requests run again against the full cache, on the side."),
    Metric("quality.shadow_tokens", _C, "tokens", "Their generated tokens, compared one by one."),
    Metric("quality.shadow_agreed", _C, "tokens", "Of those tokens, the ones the full cache would have said too."),
    Metric("quality.shadow_kl_sum", _C, "nats", "Sum over those tokens of KL(full cache, served cache)."),
    Metric("quality.shadow_margin_sum", _C, "logits", "Sum over those tokens of the served cache's lead."),
    Metric("quality.shadow_full_margin_sum", _C, "logits", "Sum over those tokens of the full cache's lead."),
    Metric("quality.shadow_time", _C, "s", "Seconds spent running requests again; part of the engine's host time."),
    # Configuration that decides what can go wrong; from an engine's page, its command line, its log, or a person.
    # Who said what stands in config.said; the numbers themselves carry no labels.
    Metric("config.said", "info", "", "Always 1; one setting, its value as it was spelt, and who said so.", SAID),
    Metric("config.tensor_parallel", _G, "ranks", "Ranks that a layer's heads are split over."),
    Metric("config.pipeline_parallel", _G, "ranks", "Ranks that the layers are split over."),
    Metric("config.data_parallel", _G, "engines", "Engine cores that each hold the whole model."),
    Metric("config.layers", _G, "layers", "Layers that hold KV."),
    Metric("config.layers_on_device", _G, "layers", "Layers whose weights lie on the device."),
    Metric(
        "config.share_on_host", _G, "ratio", "Share of weights and KV that lies in host memory and is computed there."
    ),
    Metric("config.kv_heads", _G, "heads", "KV heads of a layer; 1 under latent attention."),
    Metric("config.kv_bits", _G, "bits", "Bits of one stored KV element, scales included, mean of keys and values."),
    Metric("config.kv_key_bits", _G, "bits", "Bits of one stored element of the keys, scales included."),
    Metric("config.kv_value_bits", _G, "bits", "Bits of one stored element of the values, scales included."),
    Metric("config.kv_type_off_path", _G, "flag", "1 where the device has no attention kernel for the KV's types."),
    Metric("config.host_fallback", _G, "flag", "1 where the host computes what the device has no kernel for."),
    Metric("config.kv_unified", _G, "flag", "1 where all requests share one pool, 0 where each slot has its own."),
    Metric("config.flash_attention", _G, "flag", "1 where attention runs as one fused kernel."),
    Metric("config.max_batched_tokens", _G, "tokens", "Tokens that a step may compute."),
    Metric("config.chunked_prefill", _G, "flag", "1 where a prompt may be computed in pieces."),
    Metric("config.max_context", _G, "tokens", "Longest context that a request may have."),
    Metric("config.memory_utilization", _G, "ratio", "Share of the device's memory that the engine may take."),
    Metric("config.device_memory_bytes", _G, "B", "Memory of one device."),
    Metric("config.price_per_hour", _G, "money", "What an hour of the machine costs, in any currency."),
    Metric("config.weights_bytes", _G, "B", "Bytes of the weights on one device."),
    Metric("config.kv_memory_bytes", _G, "B", "Bytes of one device that were left for the KV pool."),
    Metric("config.graph_bytes", _G, "B", "Bytes that captured graphs hold."),
    Metric("config.graphs", _G, "flag", "1 where decode steps run from captured graphs."),
    Metric(
        "config.async_scheduling", _G, "flag", "1 where a step is scheduled while the device computes the one before."
    ),
    Metric("config.graph_max_batch", _G, "requests", "Largest batch for which a graph was captured."),
    Metric("config.graph_memory_estimated", _G, "flag", "1 where estimated memory of graphs is taken out of the pool."),
    Metric("config.reserved_output_tokens", _G, "tokens", "Tokens booked ahead for a request's output."),
    Metric("config.reserves_output", _G, "flag", "1 where admission books a request's longest output from the start."),
    Metric("config.prefix_alignment", _G, "tokens", "Prompt tokens are cached in multiples of this."),
    Metric("config.prefix_caching", _G, "flag", "1 where prefixes are cached."),
    Metric("config.window_kv", _G, "flag", "1 where some layers keep only a window of their KV."),
    Metric("config.state_checkpoints", _G, "flag", "1 where recurrent state is kept at checkpoints."),
    Metric("config.state_slots", _G, "slots", "Recurrent states that the pool can hold."),
    Metric("config.host_cache_bytes", _G, "B", "Host memory that may hold KV behind the pool."),
    Metric("config.speculative", _G, "flag", "1 where tokens are guessed ahead and checked."),
    Metric("config.sparse_topk", _G, "tokens", "Tokens that sparse attention reads."),
    Metric("config.sparse_index", _G, "flag", "1 where what is read is chosen by index keys stored beside the KV."),
    Metric("config.index_period", _G, "layers", "Layers that share what one pass over the index chose."),
    Metric("config.state_layers", _G, "flag", "1 where some layers keep a recurrent state instead of KV."),
    Metric("config.slower_tier", _G, "flag", "1 where a slower tier lies behind the pool."),
    Metric("config.host_sampling", _G, "flag", "1 where sampling asks for work on the host: penalties, grammars."),
    Metric("config.prompts_random", _G, "flag", "1 where prompts were drawn at random and have nothing in common."),
    Metric("config.prompts_repeat", _G, "flag", "1 where a run sends again what the run before it sent."),
    Metric("config.stated", _G, "flag", "1 where a person wrote the figures down, to ask about them."),
    # What an engine warned of, from its log: each is a point on the time axis.
    Metric("events.oom", _C, "events", "Allocations of device memory that failed.", ("phase",)),
    Metric("events.start_failed", _C, "events", "Starts given up because the KV pool would hold too little."),
    Metric("events.kv_full", _C, "events", "Times the engine said that its KV pool had no room for a batch."),
    Metric(
        "events.kernel_fallback", _C, "events", "Times the engine said that a slower kernel, or the host, steps in."
    ),
    Metric("events.graph_off", _C, "events", "Times the engine said that steps run without captured graphs."),
    Metric("events.prefix_caching_off", _C, "events", "Times the engine said that prefixes are not cached."),
    Metric("events.checkpoints_erased", _C, "events", "Saved states of a prompt that were thrown away unused."),
    Metric("events.checkpoints_restored", _C, "events", "Saved states of a prompt from which one went on."),
    Metric("events.scale_missing", _C, "events", "Times the engine said that KV of few bits has no calibrated scale."),
    Metric("events.tier_trouble", _C, "events", "Times a slower tier could not store, load or allocate."),
    # Kernels, compilers and allocators, from traces and benchmarks.
    Metric("kernel.prefill_attention", _O, "s", "One attention kernel call of prefill."),
    Metric("kernel.decode_attention", _O, "s", "One attention kernel call of decode."),
    Metric("kernel.kv_write", _O, "s", "Writing new KV into the cache, a layer and step."),
    Metric("kernel.kv_write_launches", _G, "launches", "Kernels launched to write KV, a layer and step."),
    Metric("compile.events", _C, "events", "Kernels and graphs compiled or captured while serving."),
    Metric("compile.time", _C, "s", "Time spent on compiling and capturing while serving."),
    Metric("alloc.stall_time", _C, "s", "Time in which steps wait for device memory to be freed and got again."),
    Metric("kv.index_buffer_bytes", _G, "B", "Bytes of the buffer that scores every position of a context."),
    Metric("kv.padding_share", _G, "ratio", "Share of the pool's pages that pads layers to a common size."),
    Metric("index.read_share", _G, "ratio", "Share of the bytes a decode step reads of KV that is index keys."),
    Metric("tier.working_set_bytes", _G, "B", "Bytes of KV that come back, all requests."),
    Metric("host.top_function_share", _G, "ratio", "Share of the host's processor time in its costliest function."),
    Metric("kv.retained_bytes", _G, "B", "KV bytes held after their requests ended, reusable by nobody."),
    Metric("kv.peak_over_live", _G, "x", "Peak of KV memory / KV that requests hold."),
    Metric("prefix.reusable", _C, "tokens", "Prompt tokens looked up that had been computed before, cached or not."),
    Metric("prefix.stored", _C, "tokens", "Tokens whose blocks were newly stored in the prefix cache."),
    Metric("prefix.lost", _C, "tokens", "Tokens whose blocks were stored again after they had been evicted."),
    Metric("prefix.cached_tokens", _G, "tokens", "Tokens that lie in the prefix cache, by tier.", ("tier",)),
    Metric("prefix.full_recomputes", _C, "requests", "Requests computed from their first token though cached."),
    Metric("prefix.working_set_tokens", _G, "tokens", "Distinct prompt tokens that come back."),
    Metric("transfer.descriptors", _G, "descriptors", "Pieces that one transfer of KV is cut into."),
    Metric("transfer.post_share", _G, "ratio", "Share of a transfer's time spent on submitting its pieces."),
    Metric("host.request_overhead", _O, "s", "Time of a request spent outside the device."),
    Metric("rank.entries_read", _C, "entries", "KV entries that one rank's decode read.", ("rank",)),
    Metric("rank.selected_blocks", _C, "blocks", "Blocks that one rank read, all layers and heads.", ("rank",)),
    Metric("rank.kv_bytes", _G, "B", "KV bytes that one rank holds.", ("rank",)),
    Metric("rank.attend_time", _C, "s", "Time of one rank in attention and in merging its parts.", ("rank",)),
    Metric("rank.exchange_time", _C, "s", "Time of one rank in exchanges, waiting included.", ("rank",)),
    Metric("rank.wait_time", _C, "s", "The part of rank.exchange_time spent waiting for a later rank.", ("rank",)),
    Metric("rank.bytes_sent", _C, "B", "Bytes of its own that one rank sent, times receivers.", ("rank",)),
    Metric("quality.score", _G, "ratio", "Share of a benchmark's questions answered right."),
    Metric("quality.perplexity", _G, "ppl", "Perplexity on a fixed text."),
    Metric("quality.falls_with_length", _G, "flag", "1 where answers get worse the longer they are."),
    Metric("quality.falls_after_load", _G, "flag", "1 where answers are bad only after KV came from a slower tier."),
    # The machine.
    Metric("gpu.util", _G, "ratio", "Share of time some kernel ran; says nothing about how well.", ("gpu",)),
    Metric("gpu.mem_bw_util", _G, "ratio", "Share of time the memory interface was active.", ("gpu",)),
    Metric(
        "gpu.sm_active", _G, "ratio", "Share of the multiprocessors with work; busy ones may wait for memory.", ("gpu",)
    ),
    Metric("gpu.tensor_active", _G, "ratio", "Share of time the tensor pipes were active.", ("gpu",)),
    Metric("gpu.pcie_rx", _G, "B/s", "Received over PCIe.", ("gpu",)),
    Metric("gpu.pcie_tx", _G, "B/s", "Sent over PCIe.", ("gpu",)),
    Metric("gpu.busy_time", _C, "s", "GPU time in forward passes."),
    Metric("gpu.mem_used", _G, "B", "Device memory in use.", ("gpu",)),
    Metric("gpu.power", _G, "W", "Power draw.", ("gpu",)),
    Metric("gpu.power_cap", _G, "W", "Power the device may draw.", ("gpu",)),
    Metric("gpu.energy", _C, "J", "Energy drawn.", ("gpu",)),
    Metric("gpu.temperature", _G, "C", "Temperature of the device.", ("gpu",)),
    Metric("gpu.clock", _G, "MHz", "Clock of the compute units now.", ("gpu",)),
    Metric("gpu.clock_max", _G, "MHz", "Highest clock of the compute units.", ("gpu",)),
    Metric("gpu.mem_clock", _G, "MHz", "Clock of the device's memory now.", ("gpu",)),
    Metric("gpu.mem_clock_max", _G, "MHz", "Highest clock of the device's memory.", ("gpu",)),
    Metric("gpu.link", _G, "B/s", "Sent and received over links between GPUs.", ("gpu",)),
    Metric("gpu.xid", _G, "code", "Last error that the driver reported of the device; 0: none.", ("gpu",)),
    Metric("gpu.throttled", _G, "ratio", "Share of time the clocks were held down, by reason.", ("gpu", "reason")),
    Metric("gpu.throttle_time", _C, "s", "Time the clocks were held down, by reason.", ("gpu", "reason")),
    Metric("gpu.errors", _C, "errors", "Memory errors that could not be corrected.", ("gpu",)),
    Metric("host.cpu_util", _G, "ratio", "Busy share of all cores, 0 to 1."),
    Metric("host.process_cpu", _G, "ratio", "Cores the engine's process keeps busy (1 is one core)."),
    Metric("host.process_rss", _G, "B", "Resident memory of the engine's process."),
    Metric("host.cpu_clock", _G, "MHz", "Mean clock of the cores now."),
    Metric("host.cpu_clock_max", _G, "MHz", "Highest clock of the cores."),
    Metric("host.steal", _G, "ratio", "Share of the cores' time that went to other virtual machines."),
    Metric("host.cores", _G, "cores", "Cores of the machine."),
    Metric("host.quota", _G, "cores", "Processor time the engine's control group may use, in cores."),
    Metric("host.quota_periods", _C, "periods", "Periods of the quota in which the engine's group ran."),
    Metric("host.quota_hits", _C, "periods", "Periods in which the group used its quota up and was stopped."),
    Metric("host.quota_time", _C, "s", "Time that runnable threads of the group were stopped by the quota, added up."),
    Metric("host.pressure", _C, "s", "Time in which some task waited for a resource.", ("resource",)),
    Metric("host.numa_remote", _C, "pages", "Pages taken from another node's memory than the one that asked."),
    Metric("host.numa_pages", _C, "pages", "Pages taken from memory, any node's."),
    # Identity and configuration.
    Metric(
        "engine.info",
        "info",
        "",
        "Always 1; what is running.",
        ("engine", "version", "model", "device", "dtype", "beside"),
    ),
    Metric("engine.config_epoch", _C, "changes", "Times a knob was changed; a segment never crosses a change."),
    Metric("process.start_time", _G, "s", "When the engine's process started, seconds since the epoch."),
)

REPLICA = "replica"
"""The label that any metric may carry beside its own: which engine of a fleet said it."""

CATALOG: dict[str, Metric] = {metric.name: metric for metric in _METRICS}
_HISTOGRAM_PARTS = (".bucket", ".sum", ".count")


def metric_of(series: str) -> Metric | None:
    """Return the catalogue line of a sample's metric name, histogram parts included, or None when unknown."""
    for part in _HISTOGRAM_PARTS:
        if series.endswith(part):
            return CATALOG.get(series.removesuffix(part))
    return CATALOG.get(series)
