/** `GET /machine` and `GET /calibration` (admin-metrics.md §3, §5): what is known; nothing is measured for a request. */
import type { ModelInfo } from "../../engine/protocol.ts";
import { allocatorBody, modelFacts, NO_GUARD, REFERENCE_GB_S, readyModel, systemBody } from "./facts.ts";
import type { MetricsInput } from "./metrics-body.ts";

export function machineBody({ telemetry, facts, status, engine }: Omit<MetricsInput, "queue" | "options">) {
  const model = readyModel(status);
  const { chip } = facts.system();
  const { gbS, source } = facts.bandwidth(model);
  const known = model === null ? null : modelFacts(model, facts, telemetry);
  return {
    chip: {
      name: chip.name,
      generation: chip.generation,
      family: chip.family,
      gpu_cores: chip.gpuCores,
      bandwidth_gb_s: chip.bandwidthGbS,
      bandwidth_source: chip.bandwidthSource,
    },
    bandwidth: {
      gb_s: gbS,
      measured_at: model?.bandwidth?.measuredAt ?? null,
      method: model?.bandwidth?.method ?? null,
      source: gbS === null ? null : source,
      reference_gb_s: REFERENCE_GB_S,
    },
    memory: { ...systemBody(facts.memory()), allocator: allocatorBody(engine) },
    model: model === null ? null : modelBody(model),
    roofline: known?.roofline ?? null,
    baseline: known?.baseline ?? null,
    verdict: known?.verdict ?? null,
    guard: NO_GUARD,
  };
}

function modelBody({ id, drafter, mode, drafting, footprint, kvBytesPerToken, contextWindow }: ModelInfo) {
  return {
    target: id,
    drafter,
    mode,
    target_weights: {
      total_bytes: footprint.totalBytes,
      active_bytes: footprint.activeBytes,
      expert_bytes: footprint.expertBytes,
      embed_bytes: footprint.embedBytes,
      is_moe: footprint.experts > 0,
      n_experts: footprint.experts > 0 ? footprint.experts : null,
      experts_per_tok: footprint.expertsPerToken,
      active_is_estimate: footprint.activeIsEstimate,
    },
    drafter_weights:
      drafter === null || drafting === null
        ? null
        : // Tensors that a drafter shares with its target are the target's here.
          { total_bytes: drafting.drafterBytes, may_include_bound_target_tensors: false },
    kv_bytes_per_token: kvBytesPerToken,
    context_window: contextWindow,
  };
}

export function calibrationBody({ id, mode, drafter, drafting }: ModelInfo) {
  if (drafting === null) return { available: false, reason: "nothing is drafted in this mode" };
  const { costs } = drafting;
  if (mode === "lookup")
    return { available: false, reason: "lookup drafts cost nothing: there is no drafter to price" };
  if (costs === null) return { available: false, reason: "the costs could not be measured when the model was loaded" };
  return {
    available: true,
    mode,
    target: id,
    drafter,
    verify_ms: costs.verify,
    drafter_ms: costs.drafter,
    round_overhead_ms: costs.overhead,
    plain_ms: costs.plain,
    recommendation: { max_draft: drafting.maxDraft },
  };
}
