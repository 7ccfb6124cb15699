/** `GET /machine` and `GET /calibration` (admin-metrics.md §3, §5): what is known; nothing is measured for a request. */
import { type Static, Type as t } from "@sinclair/typebox";
import type { ModelInfo } from "../../engine/protocol.ts";
import { baselineSchema } from "../../machine/roofline.ts";
import { verdictSchema } from "../../machine/verdict.ts";
import { byNumber, count, modeSchema, oneOf, orNull } from "../openapi/schemas.ts";
import {
  allocatorBody,
  allocatorSchema,
  disabledSchema,
  modelFacts,
  NO_GUARD,
  REFERENCE_GB_S,
  readyModel,
  rooflineSchema,
  systemBody,
  systemFields,
} from "./facts.ts";
import type { MetricsInput } from "./metrics-body.ts";

const chipSchema = t.Object({
  name: t.String(),
  generation: orNull(t.Integer()),
  family: orNull(oneOf("base", "Pro", "Max", "Ultra")),
  gpu_cores: orNull(count),
  bandwidth_gb_s: orNull(t.Number({ description: "As its maker states it." })),
  bandwidth_source: oneOf("table", "table-binned", "unknown"),
});

const bandwidthSchema = t.Object({
  gb_s: orNull(t.Number()),
  measured_at: orNull(t.String()),
  method: orNull(t.String()),
  source: orNull(oneOf("measured", "theoretical")),
  reference_gb_s: t.Number(),
});

const weightsSchema = t.Object({
  total_bytes: count,
  active_bytes: t.Number({ description: "Read for a token." }),
  expert_bytes: count,
  embed_bytes: count,
  is_moe: t.Boolean(),
  n_experts: orNull(count),
  experts_per_tok: orNull(count),
  active_is_estimate: t.Boolean(),
});

const modelSchema = t.Object({
  target: t.String(),
  drafter: orNull(t.String()),
  mode: modeSchema,
  target_weights: weightsSchema,
  drafter_weights: orNull(t.Object({ total_bytes: count, may_include_bound_target_tensors: t.Literal(false) })),
  kv_bytes_per_token: t.Number(),
  context_window: t.Integer(),
});

export const machineSchema = t.Object(
  {
    chip: chipSchema,
    bandwidth: bandwidthSchema,
    memory: t.Object({ ...systemFields, allocator: allocatorSchema }),
    model: orNull(modelSchema),
    roofline: orNull(rooflineSchema),
    baseline: orNull(baselineSchema),
    verdict: orNull(verdictSchema),
    guard: disabledSchema,
  },
  { $id: "Machine" },
);

const milliseconds = byNumber(t.Number());

export const calibrationSchema = t.Union(
  [
    t.Object({ available: t.Literal(false), reason: t.String() }),
    t.Object({
      available: t.Literal(true),
      mode: modeSchema,
      target: t.String(),
      drafter: orNull(t.String()),
      verify_ms: milliseconds,
      drafter_ms: t.Union([milliseconds, t.Number()]),
      round_overhead_ms: t.Number(),
      plain_ms: orNull(t.Number()),
      recommendation: t.Object({ max_draft: t.Union([t.Integer(), t.Literal("auto")]) }),
    }),
  ],
  { $id: "Calibration" },
);

export function machineBody(input: Omit<MetricsInput, "queue" | "options">): Static<typeof machineSchema> {
  const { telemetry, facts, status, engine } = input;
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

function modelBody({
  id,
  drafter,
  mode,
  drafting,
  footprint,
  kvBytesPerToken,
  contextWindow,
}: ModelInfo): Static<typeof modelSchema> {
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

export function calibrationBody({ id, mode, drafter, drafting }: ModelInfo): Static<typeof calibrationSchema> {
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
