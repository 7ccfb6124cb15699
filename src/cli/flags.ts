/**
 * Flags, declared once per command: how a value is read, its default, its help. `command-line.ts` parses by them, citty
 * makes the help pages of them, `completions.ts` the shells' completions.
 */
import { usageError } from "./errors.ts";

export interface Flag<T> {
  readonly kind: "switch" | "value";
  readonly help: string;
  readonly initial: T;
  /** Reads one value. When a flag is given again the last one counts; of a repeatable flag the lists are joined. */
  readonly read: (text: string, name: string) => T;
  readonly repeatable?: boolean;
  /** Placeholder in the help. */
  readonly hint?: string;
  /** Shown as the default, where the default is not a plain value. */
  readonly defaultText?: string;
  /** Left out of the help: kept for old scripts. */
  readonly hidden?: boolean;
  /** All values there are. */
  readonly choices?: readonly string[];
}

export type Flags = Readonly<Record<string, Flag<unknown>>>;
export type FlagValues<F> = { readonly [K in keyof F]: F[K] extends Flag<infer T> ? T : never };

interface FlagText {
  readonly help: string;
  readonly hint?: string;
  readonly defaultText?: string;
  readonly hidden?: boolean;
}

export function switchFlag(help: string, initial = false): Flag<boolean> {
  const read = (text: string, name: string) => {
    if (text === "true" || text === "false") return text === "true";
    throw usageError(`--${name} is a switch: --${name} or --no-${name}, got '${text}'`);
  };
  return { kind: "switch", help, initial, read };
}

/** A switch that may also be left to somebody else: null when neither form is given. */
export function triFlag(help: string): Flag<boolean | null> {
  return { ...switchFlag(help), initial: null };
}

export function textFlag(text: FlagText): Flag<string | null> {
  return { kind: "value", initial: null, read: (value) => value, ...text };
}

/** Repeatable; each use adds one. */
export function listFlag(text: FlagText): Flag<readonly string[]> {
  return { kind: "value", initial: [], repeatable: true, read: (value) => [value], ...text };
}

export function choiceFlag<const C extends string>(choices: readonly C[], initial: C, text: FlagText): Flag<C> {
  const read = (value: string, name: string) => {
    const choice = choices.find((known) => known === value);
    if (choice === undefined) throw usageError(`--${name} must be one of ${choices.join(", ")}, got '${value}'`);
    return choice;
  };
  return { kind: "value", initial, read, hint: choices.join("|"), choices, ...text };
}

/** One of some words, or null when it is not given. */
export function optionalChoiceFlag<const C extends string>(choices: readonly C[], text: FlagText): Flag<C | null> {
  const [first] = choices;
  if (first === undefined) throw new RangeError("a choice of nothing");
  return { ...choiceFlag(choices, first, text), initial: null };
}

export interface NumberRange {
  readonly min?: number;
  readonly max?: number;
  /** The minimum itself is not allowed. */
  readonly above?: boolean;
  readonly integer?: boolean;
}

export function numberFlag<D extends number | null>(initial: D, range: NumberRange, text: FlagText): Flag<number | D> {
  const read = (value: string, name: string) => {
    const number = value.trim() === "" ? Number.NaN : Number(value);
    const { min = -Infinity, max = Infinity } = range;
    const fits = range.above === true ? number > min : number >= min;
    if (!Number.isFinite(number) || !fits || number > max || (range.integer === true && !Number.isInteger(number))) {
      throw usageError(`--${name} must be ${rangeText(range)}, got '${value}'`);
    }
    return number;
  };
  return { kind: "value", initial, read, hint: "N", ...text };
}

/** A number, or `auto`, or null when it is not given. */
export function autoNumberFlag(range: NumberRange, text: FlagText): Flag<number | "auto" | null> {
  const number = numberFlag(null, range, text);
  const read = (value: string, name: string) => (value === "auto" ? "auto" : number.read(value, name));
  return { ...number, read, hint: "N|auto" };
}

function rangeText({ min, max, above, integer }: NumberRange): string {
  const noun = integer === true ? "an integer" : "a number";
  if (min !== undefined && max !== undefined) return `${noun} between ${min} and ${max}`;
  if (min !== undefined) return above === true ? `${noun} above ${min}` : `${noun} not below ${min}`;
  return noun;
}
