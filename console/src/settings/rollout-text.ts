/** The request for a rollout, from a form's fields, what it would change, and which stage it is in. */

import type { Rollout, SettingsChange, Terminal } from "../api/types";

/** How a class uses its paths (`docs/paths.md`). */
export const POLICIES = ["bonded", "failover", "pinned", "duplicated", "migrate", "minfct"] as const;

type Body = Record<string, unknown>;

/**
 * Returns a rollout from the fields that are filled in; the service chooses the rest.
 *
 * The settings come from the file's text if there is one, else from the fields for one class or path.
 */
export function rolloutOf(fields: Record<string, string>, file: string | undefined): Body {
  const { name, beam, tag, terminals, stages, hold_s, wait_s, most_failures, whole, ...change } = fields;
  const settings = file === undefined ? settingsOf(change) : settingsIn(file);
  const body: Body = { name, settings, whole: whole !== undefined };
  if (beam !== undefined) body.beam = beam;
  if (tag !== undefined) body.tag = tag;
  if (terminals !== undefined) body.terminals = numbersOf(terminals, "the terminals' numbers");
  if (stages !== undefined) body.stages = numbersOf(stages, "the stages");
  for (const [member, value] of Object.entries({ hold_s, wait_s, most_failures })) {
    if (value !== undefined) body[member] = Number(value);
  }
  return body;
}

/**
 * Returns the terminals that a rollout changes, in the order in which it does; those of a beam or with a tag as
 * far as they are known here.
 */
export function orderOf({ beam, tag, terminals }: Body, known: Iterable<Terminal>): number[] {
  if (Array.isArray(terminals)) return terminals as number[];
  const isMeant = (one: Terminal) => (tag === undefined ? one.beam === beam : (one.tags ?? []).includes(String(tag)));
  return [...known].filter(isMeant).map(({ node }) => node).sort((a, b) => a - b);
}

/** Where the service says what a rollout would change of what is set of a terminal. */
export function previewOf(node: number, { whole }: Body): string {
  return `v1/terminals/${node}/settings/preview${whole === true ? "" : "?merged=true"}`;
}

/** Which of its stages a rollout is in: those that have terminals are counted. */
export function stageText({ stage, stages, counts }: Rollout): string {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  let tried = 0;
  // The others leave no terminals for a next one.
  const before = stages.filter((size) => (tried += size) < total);
  const sizes = before.length > 0 ? ` (${[...before, "the rest"].join(", ")})` : "";
  // Terminals that were deleted since are not counted.
  return `stage ${stage} of ${Math.max(stage, before.length + 1)}${sizes}`;
}

/** A changed key, its value now, and the next one. */
export function changeTexts({ key, before, after }: SettingsChange): [string, string, string] {
  return [key, valueText(before), valueText(after)];
}

function valueText(value: unknown): string {
  if (value === undefined || value === null) return "as the node has it";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The settings of the one class or path that is named. */
function settingsOf(change: Record<string, string>): Body {
  const { class: ofClass, path: ofPath, weight, policy, by, send, receive, direction } = change;
  if (ofClass !== undefined) {
    const one: Body = {};
    if (weight !== undefined) one.weight = Number(weight);
    if (policy !== undefined) one.policy = policy;
    if (by !== undefined) one.paths = listOf(by);
    return { classes: [named(ofClass, one)], paths: [] };
  }
  if (ofPath === undefined) throw new Error("a class or a path is needed");
  const one: Body = {};
  if (send !== undefined) one.send_rate_bps = bpsOf(send);
  if (receive !== undefined) one.receive_rate_bps = bpsOf(receive);
  if (direction !== undefined) one.direction = direction;
  return { classes: [], paths: [named(ofPath, one)] };
}

function named(name: string, settings: Body): Body {
  if (Object.keys(settings).length === 0) throw new Error(`nothing of ${name} is changed`);
  return { name, ...settings };
}

/** The settings of a file. */
function settingsIn(text: string): Body {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    throw new Error("the file is no JSON");
  }
  if (typeof found !== "object" || found === null || Array.isArray(found)) {
    throw new Error("the file has no `classes` and `paths`");
  }
  return found as Body;
}

/** Reads whole numbers that commas or spaces separate; throws an error that says `what` they are. */
export function numbersOf(text: string, what: string): number[] {
  const found = listOf(text.replace(/\s/g, ","));
  if (found.length === 0 || !found.every((one) => /^\d{1,10}$/.test(one))) {
    throw new Error(`${what} are whole numbers, such as 1, 10`);
  }
  return found.map(Number);
}

function listOf(text: string): string[] {
  return text.split(",").map((one) => one.trim()).filter((one) => one !== "");
}

function bpsOf(mbps: string): number {
  return Math.round(1e6 * Number(mbps));
}
