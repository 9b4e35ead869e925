import type { Client } from "../api/client";

const WITHIN_MS = 60_000;

/** Has the browser save what is at a path: by a request of ours, as a link would not show a token. */
export async function saved(client: Client, path: string, name: string): Promise<void> {
  const answer = await client.open(path, {}, AbortSignal.timeout(WITHIN_MS));
  const url = URL.createObjectURL(await answer.blob());
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
