/**
 * The body of `POST /admin/load` as a load (admin-metrics.md §6). Pure. What this build does not have is refused by name
 * unless it is asked to be off, which it is.
 */
import { type Static, Type as t } from "@sinclair/typebox";
import type { LoadSpec, SpeculationSpec } from "../../engine/protocol.ts";
import type { Effort } from "../../text/index.ts";
import { invalidRequest } from "../errors.ts";
import type { LoadWish } from "./model-slot.ts";

const boolean = () => t.Optional(t.Boolean({ "x-must-be": "a boolean (true or false)" }));
const MODES = ["auto", "dspark", "dflash", "lookup", "baseline"] as const;
const EFFORTS = ["low", "medium", "high", "xhigh"] as const;
const DRAFTER_BITS = [0, 2, 3, 4, 5, 6, 8] as const;
const oneOf = <const T extends readonly (string | number)[]>(values: T, words: string) =>
  t.Optional(
    t.Union(
      values.map((value: T[number]) => t.Literal(value)),
      { "x-must-be": words },
    ),
  );

export const loadBodySchema = t.Object(
  {
    model: t.Optional(t.String()),
    mode: oneOf(MODES, `one of ${MODES.join(", ")}`),
    drafter: t.Optional(t.String({ minLength: 1 })),
    max_draft: t.Optional(t.Union([t.Integer(), t.Literal("auto")], { "x-must-be": "an integer or 'auto'" })),
    lookup_drafts: boolean(),
    lookup_long_draft: t.Optional(t.Integer({ minimum: 0, maximum: 1024, "x-must-be": "a non-negative integer" })),
    confidence_threshold: t.Optional(t.Number({ minimum: 0, maximum: 1, "x-must-be": "a number in [0, 1]" })),
    drafter_bits: oneOf(DRAFTER_BITS, `one of ${DRAFTER_BITS.join(", ")} (0 keeps the file's)`),
    drafter_window: t.Optional(
      t.Integer({ minimum: 0, maximum: 1e9, "x-must-be": "a non-negative integer (0 = all)" }),
    ),
    context_window: t.Optional(
      t.Union([t.Literal(0), t.Integer({ minimum: 1024, maximum: 10_000_000 }), t.Literal("auto")], {
        "x-must-be": "an integer token count >= 1024, or 0 for the model's own, or 'auto' for what fits",
      }),
    ),
    kv_bits: oneOf([0, 4, 8], "0 (full precision), 4, or 8"),
    enable_thinking: boolean(),
    reasoning_effort: oneOf(EFFORTS, `one of ${EFFORTS.join(", ")}`),
    warmup: boolean(),
    force: boolean(),
    small_m: boolean(),
    sdpa_split: boolean(),
    multirow_attn: boolean(),
    memory_guard: boolean(),
    cpu_split: t.Optional(t.Number({ minimum: 0, exclusiveMaximum: 1, "x-must-be": "a number in [0, 1)" })),
  },
  { additionalProperties: true },
);

export type LoadBody = Static<typeof loadBodySchema>;

/** Kept from one load to the next. */
export interface StickySettings {
  readonly contextWindow: LoadSpec["contextWindow"];
  /** False: no thinking unless a request asks for it; undefined: as the template says. */
  readonly thinking: false | undefined;
  readonly effort: Effort | undefined;
}

/** What the server was started with: a load begins with it. */
export interface LoadDefaults {
  readonly spec: Omit<LoadSpec, "model">;
  readonly warmup: boolean;
}

/** Throws 400 naming the field. */
export function loadRequest(
  body: LoadBody,
  { spec, warmup }: LoadDefaults,
  sticky: StickySettings,
): { readonly wish: LoadWish; readonly sticky: StickySettings } {
  const { model } = body;
  if (model === undefined || model.trim() === "") throw invalidRequest("model", "load needs a 'model' (repo or path)");
  refuseAbsent(body);
  const kept: StickySettings = {
    contextWindow: body.context_window === undefined ? sticky.contextWindow : body.context_window || null,
    thinking: body.enable_thinking === undefined ? sticky.thinking : body.enable_thinking ? undefined : false,
    effort: body.reasoning_effort ?? sticky.effort,
  };
  return {
    wish: {
      spec: {
        ...spec,
        model,
        kvBits: body.kv_bits ?? spec.kvBits,
        contextWindow: kept.contextWindow,
        speculation: speculation(body, spec.speculation),
      },
      force: body.force ?? false,
      warmup: body.warmup ?? warmup,
    },
    sticky: kept,
  };
}

/** Mode, drafter, cap and threshold belong to a pair: another model begins with none of them. */
function speculation(body: LoadBody, started: SpeculationSpec): SpeculationSpec {
  return {
    mode: body.mode ?? "auto",
    drafter: body.drafter ?? null,
    maxDraft: body.max_draft ?? null,
    confidenceThreshold: body.confidence_threshold ?? 0,
    drafterBits: body.drafter_bits ?? started.drafterBits,
    lookupDrafts: body.lookup_drafts ?? null,
    // Below the short drafts there is nothing long.
    lookupLongDraft: Math.max(1, body.lookup_long_draft ?? started.lookupLongDraft),
    drafterWindow: body.drafter_window ?? started.drafterWindow,
  };
}

const KERNELS = ["small_m", "sdpa_split", "multirow_attn"] as const;

function refuseAbsent(body: LoadBody): void {
  for (const name of KERNELS) {
    if (body[name] === true) throw invalidRequest(name, `'${name}' cannot be on: this build has no such kernel`);
  }
  if ((body.cpu_split ?? 0) > 0) {
    throw invalidRequest("cpu_split", "'cpu_split' must be 0: this build has no such kernel");
  }
  if (body.memory_guard === true) {
    throw invalidRequest("memory_guard", "'memory_guard' cannot be on: this build has no memory guard");
  }
}
