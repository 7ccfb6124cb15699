/** The table of filters. One that is not in it is an error when it is reached. */
import { TemplateError } from "./errors.ts";
import { numberFilters } from "./filters-numbers.ts";
import { selectionFilters } from "./filters-selection.ts";
import { sequenceFilters } from "./filters-sequence.ts";
import { textFilters } from "./filters-text.ts";
import { webFilters } from "./filters-web.ts";
import type { Run } from "./run.ts";
import { toJson } from "./tojson.ts";
import type { Arguments, Keywords, Value } from "./values.ts";

export type Filter = (run: Run, input: Value, args: Arguments, keywords: Keywords) => Value;

let table: ReadonlyMap<string, Filter> | null = null;

/** Built at first use, since the modules that list the filters also call them. */
function filters(): ReadonlyMap<string, Filter> {
  table ??= new Map<string, Filter>([
    ...numberFilters,
    ...selectionFilters,
    ...sequenceFilters,
    ...textFilters,
    ...webFilters,
    ["tojson", toJson],
  ]);
  return table;
}

export function isFilter(name: string): boolean {
  return filters().has(name);
}

export function findFilter(name: string): Filter {
  const filter = filters().get(name);
  if (filter === undefined) throw new TemplateError(`there is no filter named '${name}'`);
  return filter;
}
