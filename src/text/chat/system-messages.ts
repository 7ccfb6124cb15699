/**
 * Where system text goes: all of it that comes before the first assistant turn is one system message at the head;
 * later pieces become reminders in the neighbouring user turn, since templates know only a head.
 */
import type { Message } from "./messages.ts";
import { joinTexts } from "./neighbours.ts";

export function placeSystemMessages(messages: readonly Message[]): Message[] {
  const firstAnswer = messages.findIndex(({ role }) => role === "assistant");
  const headEnd = firstAnswer < 0 ? messages.length : firstAnswer;
  const isHead = (message: Message, index: number) => message.role === "system" && index < headEnd;
  const head = messages.filter(isHead);
  const others = placeReminders(messages.filter((message, index) => !isHead(message, index)));
  if (head.length === 0) return others;
  return [{ role: "system", content: joinTexts(...head.map(({ content }) => content)) }, ...others];
}

/**
 * Reminders go behind the preceding user turn, else in front of the next one. Where an answer or nothing follows they
 * are a turn of their own: moved behind an answer they would change what was rendered before it.
 */
function placeReminders(messages: readonly Message[]): Message[] {
  const placed: Message[] = [];
  let waiting: string[] = [];
  for (const message of messages) {
    const previous = placed.at(-1);
    if (message.role === "system") {
      const reminder = `<system-reminder>\n${message.content}\n</system-reminder>`;
      if (waiting.length === 0 && previous?.role === "user") {
        placed[placed.length - 1] = { ...previous, content: joinTexts(previous.content, reminder) };
      } else waiting.push(reminder);
    } else if (message.role === "user" && waiting.length > 0) {
      placed.push({ ...message, content: joinTexts(...waiting, message.content) });
      waiting = [];
    } else if (message.role === "assistant" && waiting.length > 0) {
      placed.push({ role: "user", content: joinTexts(...waiting) }, message);
      waiting = [];
    } else placed.push(message);
  }
  return waiting.length === 0 ? placed : [...placed, { role: "user", content: joinTexts(...waiting) }];
}
