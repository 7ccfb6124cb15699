/**
 * Judges a load before anything is given up for it. Runs on the calling thread, reads configurations and never weights,
 * and never connects: what is not on this machine is judged when it has been fetched.
 */

import { HubError } from "../hub/errors.ts";
import { registryRowFor } from "../hub/registry.ts";
import { resolveModel } from "../hub/resolve.ts";
import { EngineError } from "./client.ts";
import { embeddedSizes } from "./embedded/files.ts";
import { judge } from "./load-model.ts";
import { knownDrafter } from "./load-speculation.ts";
import type { LoadSpec } from "./protocol.ts";

/** @throws EngineError `load_refused` */
export async function examineLoad(spec: LoadSpec): Promise<void> {
  try {
    const { offline } = spec;
    const { mode, drafter } = spec.speculation;
    const embedded = (id: string) => (embeddedSizes(id) === null ? null : Promise.resolve(id));
    const target = await here(() => resolveModel(spec.model, { offline: true, judge, embedded }), offline);
    if (mode === "baseline" || mode === "lookup") return;
    if (drafter !== null) await here(() => resolveModel(drafter, { kind: "drafter", offline: true }), offline);
    else if (mode !== "dspark" || !shipsDrafter(spec.model)) knownDrafter(target?.repo ?? spec.model, mode);
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    throw new EngineError({ kind: "load_refused", message });
  }
}

function shipsDrafter(name: string): boolean {
  const row = registryRowFor(name);
  return row !== null && (embeddedSizes(row.id)?.drafter ?? null) !== null;
}

/** Null: not on this machine, and allowed to be fetched. */
async function here<T>(find: () => Promise<T>, offline: boolean): Promise<T | null> {
  try {
    return await find();
  } catch (error) {
    if (!offline && error instanceof HubError && error.kind === "offline") return null;
    throw error;
  }
}
