/** A list of the service, read anew when asked; and what went wrong with the last change. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Rereading } from "../api/rereading";
import { READ } from "../fleet/live";
import { useLive } from "../shell/context";

export interface Listed<T> {
  entries: T[] | undefined;
  flaw: string | undefined;
  /** Changes something, and reads the list anew; tells whether it went well. */
  change: (work: () => Promise<unknown>) => Promise<boolean>;
  /** Reads the list anew, as somebody else has changed it. */
  reread: () => void;
}

/** Reads a list, of a long one the first `most`. */
export function useListed<T>(path: string, member: string, most?: number): Listed<T> {
  const live = useLive();
  const [entries, setEntries] = useState<T[]>();
  const [flaw, setFlaw] = useState<string>();
  const failed = (error: unknown) => setFlaw(error instanceof Error ? error.message : String(error));
  const reading = useRef<Rereading | undefined>(undefined);
  useEffect(() => {
    const one = new Rereading(async (signal) => {
      const found = await live.client.all<T>(path, member, signal, most);
      if (!signal.aborted) setEntries(found);
    }, failed);
    reading.current = one;
    void one.now();
    // What it was as events were missed is not told by later ones.
    const off = live.listen(({ kind }) => void (kind === READ && one.soon()));
    return () => {
      off();
      one.close();
    };
  }, [path]);
  const change = async (work: () => Promise<unknown>) => {
    setFlaw(undefined);
    let went = true;
    try {
      await work();
    } catch (error) {
      failed(error);
      // Somebody else may have been first.
      went = false;
    }
    await reading.current?.now();
    return went;
  };
  return { entries, flaw, change, reread: () => reading.current?.soon() };
}

/** What a form's fields hold, without the empty ones. */
export function filled(form: HTMLFormElement): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, value] of new FormData(form)) {
    if (typeof value === "string" && value !== "") found[name] = value;
  }
  return found;
}
