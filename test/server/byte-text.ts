/** The text side of the scripted engine: a token is a byte, id 256 ends a turn; a chat is "role: content" lines. */
import { invalidRequest } from "../../src/server/errors.ts";
import type { TextSource } from "../../src/server/generation/text.ts";
import type {
  CallFamily,
  GrammarFacts,
  LooseConversation,
  ReasoningForm,
  RenderOptions,
} from "../../src/text/index.ts";
import { EOS } from "./scripted-engine.ts";

export class ByteText implements TextSource {
  readonly eosIds = [EOS];
  readonly grammarFacts: GrammarFacts | null = null;
  readonly warnings = ["the template prints the time of day"];
  readonly conversations: LooseConversation[] = [];
  /** With each conversation, what it was to be rendered with. */
  readonly rendered: RenderOptions[] = [];
  /** What the prompt of a chat ends with, behind its messages. */
  generationPrompt = "";
  toolFormat: CallFamily | null = "hermes";
  reasoningForm: ReasoningForm = { kind: "tags", tags: { open: "<think>", close: "</think>" } };
  supportsReasoningEffort = false;
  thinkingDefault = true;

  async encodeChat(
    conversation: LooseConversation,
    _signal?: AbortSignal,
    options: RenderOptions = {},
  ): Promise<readonly number[]> {
    this.conversations.push(conversation);
    this.rendered.push(options);
    if (conversation.messages.some((message) => message.content === "template, throw")) {
      throw invalidRequest("messages", "could not apply chat template: it was told to throw");
    }
    const lines = conversation.messages.map((m) => `${m.role}: ${m.content}\n`).join("");
    return this.encodeCompletion(lines + this.generationPrompt);
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

  tail(ids: readonly number[]): string {
    return new TextDecoder().decode(Uint8Array.from(ids.slice(-8)));
  }

  tokenBytes(id: number): Uint8Array {
    return id < 256 ? Uint8Array.of(id) : new Uint8Array(0);
  }
}
