/** The text side of the scripted engine: a token is a byte, id 256 ends a turn; a chat is "role: content" lines. */
import { invalidRequest } from "../../src/server/errors.ts";
import type { TextSource } from "../../src/server/generation/text.ts";
import type { GrammarFacts, LooseConversation } from "../../src/text/index.ts";
import { EOS } from "./scripted-engine.ts";

export class ByteText implements TextSource {
  readonly eosIds = [EOS];
  readonly grammarFacts: GrammarFacts | null = null;
  readonly warnings = ["the template prints the time of day"];
  readonly conversations: LooseConversation[] = [];

  async encodeChat(conversation: LooseConversation): Promise<readonly number[]> {
    this.conversations.push(conversation);
    if (conversation.messages.some((message) => message.content === "template, throw")) {
      throw invalidRequest("messages", "could not apply chat template: it was told to throw");
    }
    return this.encodeCompletion(conversation.messages.map((m) => `${m.role}: ${m.content}\n`).join(""));
  }

  encodeCompletion(prompt: string): readonly number[] {
    return [...new TextEncoder().encode(prompt)];
  }

  detokenizer() {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    return {
      push: (id: number) => decoder.decode(Uint8Array.of(id), { stream: true }),
      flush: () => decoder.decode(),
    };
  }

  tokenBytes(id: number): Uint8Array {
    return id < 256 ? Uint8Array.of(id) : new Uint8Array(0);
  }
}
