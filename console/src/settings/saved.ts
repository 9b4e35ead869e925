import type { Client } from "../api/client";

const WITHIN_MS = 60_000;

/** Has the browser save what is at a path. It is fetched by script: a link could not send the token. */
export async function saved(client: Client, path: string, name: string): Promise<void> {
  const answer = await client.open(path, {}, AbortSignal.timeout(WITHIN_MS));
  download(await answer.blob(), name);
}

/** Has the browser save content as a file. */
export function download(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
