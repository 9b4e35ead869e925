/** Enrolments in words, and configurations made of a template, as the command line makes them. */

import type { Enrolment } from "../api/types";

/** A dollar, a name with or without braces, or a dollar that is neither: Python's `string.Template`. */
const PLACEHOLDER = /\$(?:(\$)|([_a-z][_a-z0-9]*)|\{([_a-z][_a-z0-9]*)\}|)/gi;
/** What stands for a value cannot end a string of TOML, and so bring in keys of its own. */
const VALUE = /^[^\x00-\x1f\x7f"'\\]*$/;
/** The node's number is known. */
const NODE = "node";

/** What a template asks for beside the node's number, in order. */
export function namesIn(template: string): string[] {
  const names = [...template.matchAll(PLACEHOLDER)].flatMap(([, , bare, braced]) => bare ?? braced ?? []);
  return [...new Set(names)].filter((name) => name !== NODE);
}

/** The template with a value for each name; throws what is wrong with it, in words. */
export function filledIn(template: string, values: Readonly<Record<string, string>>): string {
  return template.replace(PLACEHOLDER, (_, dollar?: string, bare?: string, braced?: string) => {
    if (dollar) return "$";
    const name = bare ?? braced;
    if (name === undefined) throw new Error("a $ stands before no name: $$ stands for a $");
    const value = Object.hasOwn(values, name) ? values[name] : undefined;
    if (value === undefined) throw new Error(`there is no value for ${name}`);
    if (!VALUE.test(value)) throw new Error(`${name}: quotes, backslashes and line ends are refused`);
    return value;
  });
}

/** What is typed at the node; without the service's address where this page does not have one that will do. */
export function commandOf(base: string, token: string): { command: string; needsUrl: boolean } {
  const url = base.replace(/\/+$/, "");
  // The token must not go over the network in the clear; and a shell must not find more in the address.
  const needsUrl = !/^https:\/\/[\w.:[\]/~%-]+$/.test(url);
  return { command: `underpass enroll ${needsUrl ? "https://ADDRESS" : url} --token ${token}`, needsUrl };
}

export type EnrolmentState = "waiting" | "used" | "withdrawn" | "expired";

export function stateOf(one: Enrolment, nowMs: number): EnrolmentState {
  if (one.revoked) return "withdrawn";
  if (one.used) return "used";
  return Date.parse(one.expires) <= nowMs ? "expired" : "waiting";
}
