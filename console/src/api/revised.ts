import type { Client } from "./client";

const WITHIN_MS = 30_000;

/** An object to change, as it was read; the change applies only to that revision. */
export interface Revised<T> {
  value: T;
  revision: number;
}

export async function readToChange<T>(client: Client, path: string): Promise<Revised<T>> {
  const answer = await client.open(path, {}, AbortSignal.timeout(WITHIN_MS));
  // A proxy that compresses the answer makes the ETag weak.
  const revision = Number((answer.headers.get("ETag") ?? "").replace(/\D/g, ""));
  return { value: (await answer.json()) as T, revision };
}
