/** One setting of one class or path, as a rollout for a terminal and, if wanted, for others after it. */

import { ApiError } from "../api/client";
import type { LinkState, Terminal } from "../api/types";
import { numbersOf } from "./rollout-text";
import { CLASS_SETTINGS, FieldError, fieldOf, PATH_SETTINGS, type Setting, valueOf } from "./setting-schema";

/** What has settings, each under the service's name for a list of it. */
export const PARTS = [
  { part: "classes", of: "class", settings: CLASS_SETTINGS },
  { part: "paths", of: "path", settings: PATH_SETTINGS },
] as const;

/** Which terminals get it: the first is always the one that the form is for. */
export const WHO = ["this", "numbers", "tag", "beam"] as const;

/** The service's limit for terminals that are named. */
const MOST = 10_000;

interface Chosen {
  place: (typeof PARTS)[number];
  setting: Setting;
  who: (typeof WHO)[number];
}

/** Returns the rollout that a form's filled-in fields describe; throws an error in words, of one field a `FieldError`. */
export function rolloutFor(terminal: Terminal, { place, setting, who }: Chosen, fields: Readonly<Record<string, string>>, known: Iterable<Terminal>) {
  const { name = "", tag, terminals = "", stages } = fields;
  const entry = { name, [setting.key]: valueOf(setting, fields) };
  const settings = { classes: [] as unknown[], paths: [] as unknown[], [place.part]: [entry] };
  const others = who === "this" ? [] : who === "numbers" ? numbersIn(terminals, "terminals") : nodesOf(terminal, tag, known);
  const nodes = [...new Set([terminal.node, ...others])];
  if (nodes.length > MOST) {
    throw new Error(`That would be ${nodes.length} terminals, and at most ${MOST} can be named: begin it under Settings, Rollouts.`);
  }
  return {
    name: `${place.of} ${name}: ${setting.key}`,
    settings,
    whole: false,
    terminals: nodes,
    ...(stages !== undefined && { stages: numbersIn(stages, "stages") }),
    ...(fields.hold_s !== undefined && { hold_s: Number(fields.hold_s) }),
  };
}

/** What is wrong, by the fields of the form that it is about; empty if it is about none. */
export function fieldErrors(error: unknown, setting: Setting): Record<string, string> {
  if (error instanceof FieldError) return { [error.field]: error.message };
  const found: Record<string, string> = {};
  if (!(error instanceof ApiError)) return found;
  const fields = ["name", "terminals", "stages", "hold_s", ...setting.members.map((member) => fieldOf(setting, member))];
  for (const { pointer, detail } of error.flaws) {
    const about = pointer.replace(/^(\/settings)?\/((classes|paths|terminals)\/\d+\/)?/, "");
    // An entry of a list has its place behind the field's name.
    const field = fields.find((one) => about === one || about.startsWith(`${one}/`));
    if (field !== undefined) found[field] ??= detail;
  }
  return found;
}

/** The classes and paths that a terminal is known to have, by what it has reported of what it sends. */
export function namesOf(state: LinkState | undefined): Record<(typeof PARTS)[number]["part"], string[]> {
  const classes = state?.figures?.classes ?? [];
  const others = state?.figures?.other_paths ?? [];
  return {
    classes: classes.map(({ name }) => name),
    paths: state ? [...new Set([state.path, ...others.map(({ path }) => path)])] : [],
  };
}

function nodesOf({ beam }: Terminal, tag: string | undefined, known: Iterable<Terminal>): number[] {
  const isMeant = (one: Terminal) => (tag === undefined ? one.beam === beam : (one.tags ?? []).includes(tag));
  return [...known].filter(isMeant).map(({ node }) => node).sort((a, b) => a - b);
}

function numbersIn(text: string, field: "terminals" | "stages"): number[] {
  try {
    return numbersOf(text, field === "stages" ? "the stages" : "the terminals' numbers");
  } catch (error) {
    throw new FieldError(field, error instanceof Error ? error.message : String(error));
  }
}
