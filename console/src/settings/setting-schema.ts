/**
 * The settings of a class, a path, or a gateway's terminal that the service takes, each with its bounds:
 * `ClassSettings`, `PathSettings` and `AcceptedTerminal` of the API, in units for people.
 */

import { POLICIES } from "./rollout-text";

/** How a value is typed: bounds are in the service's unit, of which the typed number is `times` as many. */
export type Input =
  | { kind: "number"; min: number; max: number; times: number; isWhole: boolean }
  | { kind: "choice"; of: readonly string[] }
  | { kind: "yes-no" }
  | { kind: "name" }
  | { kind: "names"; example: string };

export interface Member {
  /** The service's name. */
  key: string;
  label: string;
  input: Input;
}

/** One thing that is set; a table is set as a whole, so that what is left empty of it is the node's default. */
export interface Setting {
  key: string;
  label: string;
  isTable: boolean;
  /** Of a table, its members; else the setting itself. */
  members: readonly Member[];
}

/** What is wrong with one field of a form. */
export class FieldError extends Error {
  constructor(
    readonly field: string,
    message: string,
  ) {
    super(message);
  }
}

const DAY_S = 86_400;
const MOST_BPS = 100_000_000_000;
const LEAST_BPS = 8_000;
const MEGA = 1_000_000;
const GIGA = 1_000_000_000;

export const CLASS_SETTINGS: readonly Setting[] = [
  one(whole("weight", "Weight", 1, 2 ** 32 - 1)),
  one(choice("policy", "Policy", POLICIES)),
  one(names("paths", "By the paths", "lte, satellite")),
  one(choice("metered", "By paths whose bytes are paid for", ["never", "last", "freely"])),
  one(choice("coded", "As coded datagrams", ["never", "tail", "always"])),
  one(choice("estimate", "Estimate of a flow's time", ["open-session", "new-connection"])),
  table("migrate", "Migration rule", [
    yesNo("by_rule", "Moves by the rule"),
    number("after_s", "Moves after, s", 0.5, 3_600),
    number("full_part", "Full from, part of 1", 0.001, 1),
    number("delay_factor", "Delay, times the usual", 1, 1_000),
    number("loss", "Loss, part of 1", 0.001, 1),
    number("rate_part", "Rate below, part of 1", 0.001, 1),
    number("back_after_s", "Back after, s", 1, DAY_S),
    number("room_part", "Room for it, part of 1", 0.001, 1),
  ]),
];

/** Of a path, at whichever end. */
const HOP_SETTINGS: readonly Setting[] = [
  one(rate("send_rate_bps", "Sends at most, Mbit/s")),
  one(rate("receive_rate_bps", "Receives at most, Mbit/s")),
  one(rate("rate_hint_bps", "Begins to send at, Mbit/s")),
  one(whole("rtt_ms", "Round trip, ms", 1, 60_000)),
  one(whole("mtu_bytes", "Largest packet, bytes", 576, 65_535)),
  one(choice("direction", "Direction", ["both", "receive"])),
  table("meter", "Cost: its bytes are paid for", [
    { key: "budget_bytes", label: "Budget, GB", input: { kind: "number", min: 1, max: 1e15, times: GIGA, isWhole: true } },
    choice("period", "Renewed each", ["day", "month", "once"]),
    whole("first_day", "First day of a month", 1, 28),
    names("beyond", "Classes that go on once it is spent", "signalling"),
  ]),
];

/** When a path is brought up. */
const WHEN_UP: readonly Member[] = [
  number("within_s", "Data would wait for, s", 0, DAY_S),
  number("others_down_s", "Others down for, s", 0, DAY_S),
];

export const PATH_SETTINGS: readonly Setting[] = [
  ...HOP_SETTINGS,
  table("on_demand", "Up on demand", [
    ...WHEN_UP,
    number("idle_s", "Released when idle for, s", 1, DAY_S),
    number("least_up_s", "Up at least, s", 1, DAY_S),
    number("least_down_s", "Down at least, s", 1, DAY_S),
    number("connect_s", "To connect at most, s", 1, DAY_S),
    yesNo("neighbour_asks", "The hub may ask for it"),
  ]),
];

/** Of a terminal, at its gateway. */
export const TERMINAL_SETTINGS: readonly Setting[] = [
  one(whole("weight", "Weight among the terminals", 1, 2 ** 32 - 1)),
  ...HOP_SETTINGS,
  table("on_demand", "Asked to bring a path up", [{ key: "path", label: "Path, as the terminal names it", input: { kind: "name" } }, ...WHEN_UP]),
];

/** The form's field for a member: also how the service names it in its errors, below the class or path. */
export function fieldOf({ key, isTable }: Setting, member: Member): string {
  return isTable ? `${key}/${member.key}` : key;
}

/** The bounds of a number as they are typed. */
export function boundsOf({ min, max, times, isWhole }: Extract<Input, { kind: "number" }>) {
  return { min: String(min / times), max: String(max / times), step: isWhole && times === 1 ? "1" : "any" };
}

/** The value that is set by a form's filled-in fields; throws a `FieldError` if nothing is. */
export function valueOf(setting: Setting, fields: Readonly<Record<string, string>>): unknown {
  const found: [string, unknown][] = [];
  for (const member of setting.members) {
    const text = fields[fieldOf(setting, member)];
    if (text !== undefined) found.push([member.key, read(member.input, text, fieldOf(setting, member))]);
  }
  const [first] = found;
  const [member] = setting.members;
  if (!first) throw new FieldError(member ? fieldOf(setting, member) : setting.key, "a value is needed");
  return setting.isTable ? Object.fromEntries(found) : first[1];
}

function read(input: Input, text: string, field: string): unknown {
  if (input.kind === "choice" || input.kind === "name") return text;
  if (input.kind === "yes-no") return text === "yes";
  if (input.kind === "names") {
    const listed = text.split(",").map((name) => name.trim()).filter((name) => name !== "");
    if (listed.length === 0) throw new FieldError(field, "a name is needed");
    return listed;
  }
  const value = input.times * Number(text);
  return input.isWhole ? Math.round(value) : value;
}

function one(member: Member): Setting {
  return { key: member.key, label: member.label, isTable: false, members: [member] };
}

function table(key: string, label: string, members: readonly Member[]): Setting {
  return { key, label, isTable: true, members };
}

function whole(key: string, label: string, min: number, max: number): Member {
  return { key, label, input: { kind: "number", min, max, times: 1, isWhole: true } };
}

function number(key: string, label: string, min: number, max: number): Member {
  return { key, label, input: { kind: "number", min, max, times: 1, isWhole: false } };
}

function rate(key: string, label: string): Member {
  return { key, label, input: { kind: "number", min: LEAST_BPS, max: MOST_BPS, times: MEGA, isWhole: true } };
}

function choice(key: string, label: string, of: readonly string[]): Member {
  return { key, label, input: { kind: "choice", of } };
}

function yesNo(key: string, label: string): Member {
  return { key, label, input: { kind: "yes-no" } };
}

function names(key: string, label: string, example: string): Member {
  return { key, label, input: { kind: "names", example } };
}
