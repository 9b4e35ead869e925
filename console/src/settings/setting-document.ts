/** A node's document of settings, of which one is changed: to be set as a whole, if it is still as it was read. */

import { ApiError, type Client } from "../api/client";
import { readToChange } from "../api/revised";
import type { SettingsChange, SettingsPreview } from "../api/types";

export type Entry = Record<string, unknown>;

export interface SettingsDocument {
  classes: Entry[];
  paths: Entry[];
  /** Of a gateway. */
  terminals?: Entry[];
}

type List = keyof SettingsDocument;

/** The member that names an entry of a list. */
export const NAMED_BY = { classes: "name", paths: "name", terminals: "node" } as const;

/** Of which entry a setting is. */
export interface Place {
  list: List;
  id: string | number;
}

/** A document that may be set, and what it would change. */
export interface Edit {
  body: SettingsDocument;
  /** Of what was set; 0 if nothing was. */
  revision: number;
  changes: SettingsChange[];
}

const NOT_FOUND = 404;

/** Returns a document with one setting changed; without a value, it is as in the node's own configuration. */
export function withSetting(document: SettingsDocument, { list, id }: Place, key: string, value?: unknown): SettingsDocument {
  const by = NAMED_BY[list];
  const entries = document[list] ?? [];
  const found = entries.find((entry) => entry[by] === id);
  const { [key]: _, ...rest } = found ?? { [by]: id };
  const changed = value === undefined ? rest : { ...rest, [key]: value };
  const all = found ? entries.map((entry) => (entry === found ? changed : entry)) : [...entries, changed];
  // An entry of which nothing is set is left out.
  return { ...document, [list]: all.filter((entry) => Object.keys(entry).length > 1) };
}

/** Asks what one changed setting would change; throws if the service would refuse it. */
export async function editOf(client: Client, path: string, change: (document: SettingsDocument) => SettingsDocument): Promise<Edit> {
  const found = await readToChange<SettingsDocument>(client, path).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === NOT_FOUND) return undefined;
    throw error;
  });
  const { classes = [], paths = [], terminals } = found?.value ?? {};
  const body = change({ classes, paths, ...(terminals && { terminals }) });
  const { changes } = await client.post<SettingsPreview>(`${path}/preview`, body);
  return { body, revision: found?.revision ?? 0, changes };
}

/** The settings of an entry, by their keys. */
export function keysOf(entry: Entry, list: List): [string, unknown][] {
  return Object.entries(entry).filter(([key]) => key !== NAMED_BY[list]);
}
