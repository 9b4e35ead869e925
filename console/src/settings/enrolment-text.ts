/** Texts about enrolments, and configurations filled in from a template as the command line does. */

import type { Enrolment } from "../api/types";

/** A dollar, a name with or without braces, or a dollar that is neither: Python's `string.Template`. */
const PLACEHOLDER = /\$(?:(\$)|([_a-z][_a-z0-9]*)|\{([_a-z][_a-z0-9]*)\}|)/gi;
/** A value must not be able to end a TOML string: it could then add keys of its own. */
const VALUE = /^[^\x00-\x1f\x7f"'\\]*$/;
/** Not asked for: the node's number is known. */
const NODE = "node";

/** Returns the names that a template needs values for, in order, without the node's number. */
export function namesIn(template: string): string[] {
  const names = [...template.matchAll(PLACEHOLDER)].flatMap(([, , bare, braced]) => bare ?? braced ?? []);
  return [...new Set(names)].filter((name) => name !== NODE);
}

/** Fills in the template; throws an error that says in words what is wrong with it. */
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

/** Returns the command to type at the node; `needsUrl` if this page's address is of no use there. */
export function commandOf(base: string, token: string): { command: string; needsUrl: boolean } {
  const url = base.replace(/\/+$/, "");
  // The token must not cross the network unencrypted, and the address must be safe in a shell.
  const needsUrl = !/^https:\/\/[\w.:[\]/~%-]+$/.test(url);
  return { command: `underpass enroll ${needsUrl ? "https://ADDRESS" : url} --token ${token}`, needsUrl };
}

export type EnrolmentState = "waiting" | "used" | "withdrawn" | "expired";

export function stateOf(one: Enrolment, nowMs: number): EnrolmentState {
  if (one.revoked) return "withdrawn";
  if (one.used) return "used";
  return Date.parse(one.expires) <= nowMs ? "expired" : "waiting";
}
