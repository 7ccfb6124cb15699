/**
 * Flags, declared once per command: how a value is read, its default, its help. Parsing is strict where citty's is
 * not: an unknown flag, a missing value and a stray word are errors (cli.md §1). citty gets the same declarations for
 * its help pages.
 */
import type { ArgsDef } from "citty";
import { usageError } from "./errors.ts";
import { nearest } from "./nearest.ts";

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
  return { kind: "value", initial, read, hint: choices.join("|"), ...text };
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

function rangeText({ min, max, above, integer }: NumberRange): string {
  const noun = integer === true ? "an integer" : "a number";
  if (min !== undefined && max !== undefined) return `${noun} between ${min} and ${max}`;
  if (min !== undefined) return above === true ? `${noun} above ${min}` : `${noun} not below ${min}`;
  return noun;
}

/** Reads argv; throws a usage error (exit 2). Words after a bare `--` are refused: no command here passes them on. */
export function parseFlags<F extends Flags>(argv: readonly string[], flags: F): FlagValues<F> {
  const values = new Map<string, unknown>(Object.entries(flags).map(([name, flag]) => [name, flag.initial]));
  const set = (name: string, flag: Flag<unknown>, text: string) => {
    const value = flag.read(text, name);
    const earlier = values.get(name);
    const joined = flag.repeatable === true && Array.isArray(earlier) && Array.isArray(value);
    values.set(name, joined ? [...earlier, ...value] : value);
  };
  for (let i = 0; i < argv.length; i++) {
    const word = argv[i] ?? "";
    if (!word.startsWith("--") || word === "--") throw usageError(strayWord(word, flags));
    const [name = "", ...valueParts] = word.slice(2).split("=");
    const inline = valueParts.length > 0 ? valueParts.join("=") : null;
    const flag = own(flags, name);
    if (flag === undefined) {
      const negated = name.startsWith("no-") ? own(flags, name.slice(3)) : undefined;
      if (negated?.kind !== "switch" || inline !== null) throw usageError(unknownFlag(name, flags));
      set(name.slice(3), negated, "false");
    } else if (flag.kind === "switch") {
      set(name, flag, inline ?? "true");
    } else if (inline !== null) {
      set(name, flag, inline);
    } else {
      const next = argv[i + 1];
      if (next === undefined || isFlagWord(next, flags)) throw usageError(`--${name} needs a value`);
      set(name, flag, next);
      i += 1;
    }
  }
  // Every key was filled from the declarations above, with its own reader's type.
  return Object.fromEntries(values) as FlagValues<F>;
}

function own(flags: Flags, name: string): Flag<unknown> | undefined {
  return Object.hasOwn(flags, name) ? flags[name] : undefined;
}

/** A known flag is never taken for a value; other words with dashes (`-`, `-1`, `--x`) may be. */
function isFlagWord(word: string, flags: Flags): boolean {
  if (!word.startsWith("--")) return false;
  const name = word.slice(2).split("=", 1)[0] ?? "";
  return own(flags, name) !== undefined || own(flags, name.replace(/^no-/, "")) !== undefined;
}

function unknownFlag(name: string, flags: Flags): string {
  const visible = Object.keys(flags).filter((known) => flags[known]?.hidden !== true);
  const similar = nearest(name, visible);
  return `unknown flag --${name}${similar === null ? "" : `; did you mean --${similar}?`}`;
}

function strayWord(word: string, flags: Flags): string {
  if (word.startsWith("-") && word !== "-" && word !== "--") return unknownFlag(word.replace(/^-+/, ""), flags);
  return `unexpected argument '${word}'`;
}

/** The declarations in citty's terms, for its help page. */
export function cittyArgs(flags: Flags): ArgsDef {
  const visible = Object.entries(flags).filter(([, flag]) => flag.hidden !== true);
  return Object.fromEntries(visible.map(([name, flag]) => [name, cittyArg(flag)]));
}

function cittyArg(flag: Flag<unknown>): ArgsDef[string] {
  if (flag.kind === "switch") {
    return { type: "boolean", description: flag.help, ...(flag.initial === true && { default: true }) };
  }
  const shown =
    flag.defaultText ??
    (typeof flag.initial === "number" || typeof flag.initial === "string" ? String(flag.initial) : null);
  return {
    type: "string",
    description: flag.help,
    ...(flag.hint !== undefined && { valueHint: flag.hint }),
    ...(shown !== null && { default: shown }),
  };
}
