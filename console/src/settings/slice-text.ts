/** Slices as JSON texts. */

import type { Slice } from "../api/types";

/** The service's limit. */
const MOST_BYTES = 1 << 20;

type Body = Record<string, unknown>;

export function pathOf(name: string): string {
  return `v1/slices/${encodeURIComponent(name)}`;
}

/** Reads the slice that a file has. */
export async function sliceIn(file: Blob): Promise<Body> {
  if (file.size > MOST_BYTES) throw new Error("The file has more than 1 MiB: it is no slice.");
  let found: unknown;
  try {
    found = JSON.parse(await file.text());
  } catch {
    throw new Error("The file is no JSON.");
  }
  if (typeof found !== "object" || found === null || Array.isArray(found)) throw new Error("The file has no slice.");
  return found as Body;
}

/** Returns what is set of a slice: from it, the slice can be made again under this name or another. */
export function setOf({ site, networks, functions }: Slice): Body {
  return { site, networks, functions: functions.map(({ generation: _, ...one }) => one) };
}

/** A slice's text for comparison: two that mean the same have the same one. */
export function comparable({ tenant: _, ...body }: Body): string {
  const { functions } = body;
  const filled = { site: "default", ...body, ...(Array.isArray(functions) && { functions: functions.map(withReplicas) }) };
  return JSON.stringify(sorted(filled), null, 2);
}

function withReplicas(one: unknown): unknown {
  return typeof one === "object" && one !== null ? { replicas: 1, ...one } : one;
}

/** Sorts the members by their names; one that is null is left out, as the service does. */
function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const members = Object.entries(value).filter(([, one]) => one !== null);
  members.sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(members.map(([name, one]) => [name, sorted(one)]));
}
