/**
 * What `/metrics`, `/machine` and `/health` share: machine, allocator and roofline, put together from what is known without
 * measuring anything. A model's part is null while there is none.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import type { EngineStatus } from "../../engine/client.ts";
import type { EngineStats, ModelInfo } from "../../engine/protocol.ts";
import { type Baseline, baselineOf, ceilingAt, ceilingSchema } from "../../machine/roofline.ts";
import { type MemoryState, readMemory, readSystem, type SystemFacts } from "../../machine/system.ts";
import { type Verdict, verdictOf } from "../../machine/verdict.ts";
import { count, oneOf, orNull } from "../openapi/schemas.ts";
import type { Telemetry } from "./telemetry.ts";

/** Reading the state of the memory starts small programs on macOS: not oftener than this. */
const MEMORY_AGE_MS = 3000;

/** The reference of published figures: an M4 Pro (memory.md §8). */
export const REFERENCE_GB_S = 273;
/** Measured there. */
const REFERENCE_MEASURED_GB_S = 226;

export class MachineFacts {
  private memoryState: MemoryState | null = null;
  private readAt = 0;
  private systemFacts: SystemFacts | null = null;
  private swapAtLoad: { readonly model: ModelInfo; readonly bytes: number | null } | null = null;

  system(): SystemFacts {
    this.systemFacts ??= readSystem();
    return this.systemFacts;
  }

  /** At most `MEMORY_AGE_MS` old. */
  memory(): MemoryState {
    const now = performance.now();
    if (this.memoryState === null || now - this.readAt > MEMORY_AGE_MS) {
      this.memoryState = readMemory();
      this.readAt = now;
    }
    return this.memoryState;
  }

  /** GB/s, and whether it was measured or is the maker's figure. */
  bandwidth(model: ModelInfo | null): { readonly gbS: number | null; readonly source: "measured" | "theoretical" } {
    const measured = model?.bandwidth ?? null;
    if (measured !== null) return { gbS: measured.gbS, source: "measured" };
    return { gbS: this.system().chip.bandwidthGbS, source: "theoretical" };
  }

  /** By how much published figures shrink or grow on this machine; null: nothing is known of it. */
  scale(model: ModelInfo | null): number | null {
    const { bandwidthGbS } = this.system().chip;
    const measured = model?.bandwidth?.gbS ?? null;
    if (bandwidthGbS !== null) return thousandths(bandwidthGbS / REFERENCE_GB_S);
    return measured === null ? null : thousandths(measured / REFERENCE_MEASURED_GB_S);
  }

  swapGrowth(model: ModelInfo): number | null {
    const { swapUsedBytes } = this.memory();
    if (this.swapAtLoad?.model !== model) this.swapAtLoad = { model, bytes: swapUsedBytes };
    const before = this.swapAtLoad.bytes;
    return before === null || swapUsedBytes === null ? null : swapUsedBytes - before;
  }
}

export const rooflineSchema = t.Object({
  at_zero: ceilingSchema,
  at_last_request: orNull(ceilingSchema),
  at_context_window: ceilingSchema,
});

export interface ModelFacts {
  readonly roofline: Static<typeof rooflineSchema>;
  readonly baseline: Baseline | null;
  readonly verdict: Verdict;
}

/** What is known of the loaded model on this machine. */
export function modelFacts(model: ModelInfo, facts: MachineFacts, telemetry: Telemetry): ModelFacts {
  const { gbS } = facts.bandwidth(model);
  const read = { activeBytes: model.footprint.activeBytes, kvBytesPerToken: model.kvBytesPerToken };
  const { last } = telemetry;
  const costs = model.drafting?.costs ?? null;
  const step = costs === null ? null : (costs.plain ?? costs.verify["1"] ?? null);
  const baseline = step === null ? null : baselineOf(step, read, gbS);
  const atLast = last === null ? null : ceilingAt(last.contextTokens, read, gbS);
  return {
    roofline: {
      at_zero: ceilingAt(0, read, gbS),
      at_last_request: atLast,
      at_context_window: ceilingAt(model.contextWindow, read, gbS),
    },
    baseline,
    verdict: verdictOf({
      mbu: baseline?.mbu ?? null,
      speculates: model.mode !== "baseline",
      decodeTps: last?.decodeTps ?? null,
      ceilingTps: atLast?.ceiling_tps ?? null,
      acceptLength: last?.acceptLen ?? null,
      pressure: facts.memory().pressure,
      swapGrowthBytes: facts.swapGrowth(model),
      contextTokens: last?.contextTokens ?? null,
      contextWindow: model.contextWindow,
      activeIsEstimate: model.footprint.activeIsEstimate,
    }),
  };
}

export function readyModel(status: EngineStatus): ModelInfo | null {
  return status.state === "ready" ? status.model : null;
}

export const systemFields = {
  total_bytes: count,
  pressure: oneOf("normal", "warn", "critical", "unknown"),
  pressure_level: orNull(t.Integer({ description: "As macOS counts: 1, 2, 4." })),
  free_percent: orNull(t.Number()),
  swap_used_bytes: orNull(count),
  swap_total_bytes: orNull(count),
  wired_limit_mb: orNull(t.Number({ description: "0: the system's own." })),
};
export const systemSchema = t.Object(systemFields, { $id: "SystemMemory" });

/** memory.md §1. */
export function systemBody(memory: MemoryState): Static<typeof systemSchema> {
  return {
    total_bytes: memory.totalBytes,
    pressure: memory.pressure,
    pressure_level: PRESSURE_LEVEL[memory.pressure],
    free_percent: memory.freePercent,
    swap_used_bytes: memory.swapUsedBytes,
    swap_total_bytes: memory.swapTotalBytes,
    wired_limit_mb: memory.wiredLimitMb,
  };
}

/** As macOS counts; null: unknown. */
const PRESSURE_LEVEL: Readonly<Record<MemoryState["pressure"], number | null>> = {
  normal: 1,
  warn: 2,
  critical: 4,
  unknown: null,
};

export const allocatorSchema = t.Object(
  {
    available: t.Boolean({ description: "false: the engine has not told." }),
    active_bytes: orNull(count),
    peak_bytes: orNull(count),
    cache_bytes: orNull(count),
  },
  { $id: "AllocatorMemory" },
);

export const queueSchema = t.Object({ running: count, waiting: count }, { $id: "Queue" });

export function allocatorBody(stats: EngineStats | null): Static<typeof allocatorSchema> {
  if (stats === null) return { available: false, active_bytes: null, peak_bytes: null, cache_bytes: null };
  const { mlxActiveBytes, mlxPeakBytes, mlxCacheBytes } = stats;
  return { available: true, active_bytes: mlxActiveBytes, peak_bytes: mlxPeakBytes, cache_bytes: mlxCacheBytes };
}

export const disabledSchema = t.Object({ enabled: t.Literal(false) });

/** Of things that this build does not have, said once. */
export const NO_GUARD = { enabled: false } as const;
export const NO_PREFIX_CACHE = { enabled: false } as const;

function thousandths(value: number): number {
  return Math.round(value * 1000) / 1000;
}
