/** Grammars of answers: one JSON text of a schema, or one JSON object of any kind. */
import { type CountedTable, counterTable } from "./counter-table.ts";
import { JSON_DIALECT, spacedJsonDialect } from "./dialect.ts";
import { jsonTree } from "./json-tree.ts";
import { literal, Rules } from "./rules.ts";
import { checkSize } from "./schema-limits.ts";
import { readSchema } from "./schema-reader.ts";
import { SchemaWriter } from "./schema-writer.ts";

export interface JsonGrammar {
  readonly rules: Rules;
  /** The rule of the whole text. */
  readonly start: string;
  readonly counters: CountedTable | null;
  readonly relaxed: readonly string[];
}

/** @throws GrammarError */
export function schemaGrammar(schema: unknown, strict: boolean): JsonGrammar {
  const tree = jsonTree(schema);
  checkSize([tree]);
  const { root, relaxed: noted } = readSchema(tree, strict);
  const relaxed = new Set(noted);
  const rules = new Rules();
  const writer = new SchemaWriter(rules, JSON_DIALECT, { counted: true, strict, relax: (at) => relaxed.add(at) });
  const start = writer.value(root);
  return { rules, start, counters: counterTable([{ after: "", root }]), relaxed: [...relaxed] };
}

/** Between elements: nothing, one blank, or a new line with at most eight: without an end a model could write blanks for ever. */
export function objectGrammar(): JsonGrammar {
  const rules = new Rules();
  const line = rules.define(rules.name("line"), [`"\\n" [ ]{0,8}`]);
  const gap = rules.define(rules.name("gap"), [`""`, literal(" "), line]);
  const dialect = spacedJsonDialect(gap, ",}]: \n");
  const writer = new SchemaWriter(rules, dialect, { counted: false, strict: false, relax: () => undefined });
  return { rules, start: writer.anyObject(), counters: null, relaxed: [] };
}
