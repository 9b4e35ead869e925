import type { Client } from "./client";

const WITHIN_MS = 30_000;

/** What is to be changed as it was read; it is changed only if it is still that revision. */
export interface Revised<T> {
  value: T;
  revision: number;
}

export async function readToChange<T>(client: Client, path: string): Promise<Revised<T>> {
  const answer = await client.open(path, {}, AbortSignal.timeout(WITHIN_MS));
  // A proxy that packs the answer has made it a weak one.
  const revision = Number((answer.headers.get("ETag") ?? "").replace(/\D/g, ""));
  return { value: (await answer.json()) as T, revision };
}
