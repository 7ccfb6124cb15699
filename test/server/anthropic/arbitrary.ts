/** Contents of turns as no client would write them. */
import fc from "fast-check";

/** A text, or blocks of every type whose fields hold anything. */
export function anyContent() {
  const types = ["text", "image", "document", "tool_use", "tool_result", "thinking", "search_result", "tool_reference"];
  const block = fc.record(
    {
      type: fc.constantFrom(...types),
      text: fc.jsonValue({ maxDepth: 2 }),
      content: fc.jsonValue({ maxDepth: 2 }),
      source: fc.jsonValue({ maxDepth: 2 }),
      input: fc.jsonValue({ maxDepth: 2 }),
      name: fc.jsonValue({ maxDepth: 2 }),
      thinking: fc.jsonValue({ maxDepth: 2 }),
      tool_use_id: fc.jsonValue({ maxDepth: 2 }),
    },
    { requiredKeys: ["type"] },
  );
  return fc.oneof(fc.string(), fc.array(fc.oneof(block, fc.string())));
}
