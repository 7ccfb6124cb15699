/** `strftime_now(format)`: the local date in the directives that chat templates use, with English names. */
import { TemplateError } from "./errors.ts";

const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/** Directives whose value changes within a day. */
const CLOCK = /%-?[HIMSp]/;

export function formatsTimeOfDay(format: string): boolean {
  return CLOCK.test(format.replaceAll("%%", ""));
}

/** Throws `TemplateError` for a directive that is not supported. A `-` after `%` drops the padding zero. */
export function formatTime(date: Date, format: string): string {
  return format.replace(/%(-?)([\s\S]|$)/g, (_whole, flag: string, directive: string) => {
    const text = directiveText(date, directive);
    return flag === "-" ? text.replace(/^0+(?=\d)/, "") : text;
  });
}

function directiveText(date: Date, directive: string): string {
  const month = MONTHS[date.getMonth()] ?? "";
  const day = DAYS[date.getDay()] ?? "";
  switch (directive) {
    case "d":
      return padded(date.getDate(), 2);
    case "m":
      return padded(date.getMonth() + 1, 2);
    case "Y":
      return padded(date.getFullYear(), 4);
    case "y":
      return padded(date.getFullYear() % 100, 2);
    case "B":
      return month;
    case "b":
      return month.slice(0, 3);
    case "A":
      return day;
    case "a":
      return day.slice(0, 3);
    case "H":
      return padded(date.getHours(), 2);
    case "I":
      return padded(date.getHours() % 12 || 12, 2);
    case "M":
      return padded(date.getMinutes(), 2);
    case "S":
      return padded(date.getSeconds(), 2);
    case "p":
      return date.getHours() < 12 ? "AM" : "PM";
    case "j":
      return padded(dayOfYear(date), 3);
    case "%":
      return "%";
    default:
      throw new TemplateError(`strftime_now does not support %${directive}`);
  }
}

function padded(value: number, width: number): string {
  return value.toString().padStart(width, "0");
}

function dayOfYear(date: Date): number {
  const day = Date.UTC(date.getFullYear(), date.getMonth(), date.getDate());
  return Math.round((day - Date.UTC(date.getFullYear(), 0, 1)) / 86_400_000) + 1;
}
