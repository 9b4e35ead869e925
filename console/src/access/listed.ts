/** A list of the service, read anew when asked; and what went wrong with the last change. */

import { useEffect, useState } from "preact/hooks";
import { useLive } from "../shell/context";

export interface Listed<T> {
  entries: T[] | undefined;
  flaw: string | undefined;
  /** Changes something, and reads the list anew; tells whether it went well. */
  change: (work: () => Promise<unknown>) => Promise<boolean>;
  /** Reads the list anew, as somebody else has changed it. */
  reread: () => void;
}

export function useListed<T>(path: string, member: string): Listed<T> {
  const live = useLive();
  const [entries, setEntries] = useState<T[]>();
  const [flaw, setFlaw] = useState<string>();
  const read = async (signal?: AbortSignal) => setEntries(await live.client.all<T>(path, member, signal));
  const failed = (error: unknown) => setFlaw(error instanceof Error ? error.message : String(error));
  useEffect(() => {
    const ended = new AbortController();
    read(ended.signal).catch((error: unknown) => {
      if (!ended.signal.aborted) failed(error);
    });
    return () => ended.abort();
  }, [path]);
  const change = async (work: () => Promise<unknown>) => {
    setFlaw(undefined);
    try {
      await work();
      await read();
      return true;
    } catch (error) {
      failed(error);
      // Somebody else may have been first.
      await read().catch(() => undefined);
      return false;
    }
  };
  return { entries, flaw, change, reread: () => void read().catch(failed) };
}

/** What a form's fields hold, without the empty ones. */
export function filled(form: HTMLFormElement): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, value] of new FormData(form)) {
    if (typeof value === "string" && value !== "") found[name] = value;
  }
  return found;
}
