/**
 * Chat templates: Jinja2 as transformers sets it up (immutable sandbox, `trim_blocks`, `lstrip_blocks`, loop controls,
 * `generation` blocks). Source is analysed once; a rendering is a pure function of its variables and the clock.
 */
import { compileBody } from "./compile-statement.ts";
import { toValue } from "./convert.ts";
import { TemplateError } from "./errors.ts";
import { GLOBALS } from "./globals.ts";
import { parseTemplate } from "./parse-statement.ts";
import { Run } from "./run.ts";
import { Scope } from "./scope.ts";
import type { Value } from "./values.ts";

export interface RenderOptions {
  /** The clock of `strftime_now`; the present, local time if absent. */
  readonly now?: () => Date;
}

export interface Template {
  /**
   * Renders with these variables: plain JSON-like data, numbers as `JsonNumber` where their spelling matters.
   * A variable that is `undefined` is as good as absent. Throws `TemplateError`.
   */
  render(variables: Readonly<Record<string, unknown>>, options?: RenderOptions): string;
}

/** Analyses a template. Throws `TemplateError` with the line of what is wrong. */
export function compileTemplate(source: string): Template {
  const body = withinStack(() => compileBody(parseTemplate(source)));
  return {
    render(variables, options = {}) {
      const run = new Run(options.now ?? (() => new Date()));
      try {
        return withinStack(() => run.capture(() => body(new Scope(run, variableTable(variables)))));
      } catch (error) {
        throw error instanceof TemplateError ? error.at(run.line) : error;
      }
    },
  };
}

function variableTable(variables: Readonly<Record<string, unknown>>): ReadonlyMap<string, Value> {
  const table = new Map(GLOBALS);
  for (const [name, value] of Object.entries(variables)) if (value !== undefined) table.set(name, toValue(value));
  return table;
}

/** The depth of a template is bounded, that of its data is not quite: a full stack is the template's error too. */
function withinStack<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (error instanceof RangeError && /call stack/i.test(error.message)) {
      throw new TemplateError("the template or its data is nested too deeply");
    }
    throw error;
  }
}
