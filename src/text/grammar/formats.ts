/**
 * The string formats that are enforced, as patterns: what RFC 3339, 4122, 4291, 791, 5321 and 3986 allow in the forms
 * that are commonly written; no leap seconds.
 */
const DAY = "(0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8])";
/** Two digits divisible by four; of a year's last two not 00. */
const FOURTH = "(0[48]|[2468][048]|[13579][26])";
const LEAP_YEAR = `(\\d\\d${FOURTH}|${FOURTH}00|0000)`;
const DATE = `(\\d{4}-(${DAY})|${LEAP_YEAR}-02-29)`;
const TIME = "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
const OCTET = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const HEX4 = "[0-9a-fA-F]{1,4}";
const LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?";

const FORMATS: Readonly<Record<string, string>> = {
  date: DATE,
  time: TIME,
  "date-time": `${DATE}T${TIME}`,
  uuid: "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}",
  ipv4: `${OCTET}(\\.${OCTET}){3}`,
  ipv6: `(${HEX4}:){7}${HEX4}|(${HEX4}:){1,6}:${HEX4}|(${HEX4}:){1,5}(:${HEX4}){2}|::(${HEX4}:){0,5}${HEX4}|::`,
  email: `[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+)*@${LABEL}(\\.${LABEL})+`,
  uri: `[A-Za-z][A-Za-z0-9+.-]*://${LABEL}(\\.${LABEL})*(:\\d{1,5})?(/([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})*)*`,
};

/** The pattern of a format, anchored at both ends; null: it is not enforced. */
export function formatPattern(format: string): string | null {
  const pattern = Object.hasOwn(FORMATS, format) ? FORMATS[format] : undefined;
  return pattern === undefined ? null : `^(${pattern})$`;
}
