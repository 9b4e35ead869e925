/** A list of the service, read again on demand; and the errors of the last change. */

import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "../api/client";
import { Rereading } from "../api/rereading";
import { READ } from "../fleet/live";
import { useLive } from "../shell/context";

export interface Listed<T> {
  entries: T[] | undefined;
  /** Why the last change was not made, or else why the list could not be read. */
  flaw: string | undefined;
  /** The errors of the last change, by member. */
  members: Readonly<Record<string, string>>;
  /** Makes a change, and reads the list again; tells whether the change succeeded. */
  change: (work: () => Promise<unknown>) => Promise<boolean>;
  /** Reads the list again, after a change by another user. */
  reread: () => void;
}

const AGAIN_MS = 5_000;

interface How {
  /** Of a longer list, only the first entries are read. */
  most?: number;
  /** Reads the list again in these intervals while the page is visible, for what no event tells. */
  everyMs?: number;
}

/** Reads a list of the service. */
export function useListed<T>(path: string, member: string, { most, everyMs }: How = {}): Listed<T> {
  const live = useLive();
  const [entries, setEntries] = useState<T[]>();
  const [unread, setUnread] = useState<string>();
  const [refused, setRefused] = useState<unknown>();
  const reading = useRef<Rereading | undefined>(undefined);
  useEffect(() => {
    let again: number | undefined;
    const one = new Rereading(
      async (signal) => {
        const found = await live.client.all<T>(path, member, signal, most);
        if (signal.aborted) return;
        setEntries(found);
        setUnread(undefined);
      },
      (error) => {
        setUnread(textOf(error));
        // Otherwise it would not be read again until something changes.
        again = window.setTimeout(() => one.soon(), Math.max(AGAIN_MS, error instanceof ApiError ? error.afterMs : 0));
      },
    );
    reading.current = one;
    void one.now();
    // Later events do not tell the changes that were missed.
    const off = live.listen(({ kind }) => void (kind === READ && one.soon()));
    const timer = everyMs === undefined ? undefined : setInterval(() => void (document.hidden || one.soon()), everyMs);
    return () => {
      off();
      clearInterval(timer);
      clearTimeout(again);
      one.close();
    };
  }, [path]);
  const change = async (work: () => Promise<unknown>) => {
    setRefused(undefined);
    let went = true;
    try {
      await work();
    } catch (error) {
      setRefused(error);
      // Another user may have changed it first.
      went = false;
    }
    await reading.current?.now();
    return went;
  };
  return {
    entries,
    flaw: refused === undefined ? unread : textOf(refused),
    members: membersOf(refused),
    change,
    reread: () => reading.current?.soon(),
  };
}

function membersOf(error: unknown): Record<string, string> {
  const found: Record<string, string> = {};
  if (!(error instanceof ApiError)) return found;
  for (const { pointer, detail } of error.flaws) found[pointer.split("/")[1] ?? ""] ??= detail;
  return found;
}

const CHANGED = 412;

/** What went wrong, for people. */
export function textOf(error: unknown): string {
  if (error instanceof ApiError && error.status === CHANGED) {
    return `Nothing was done, since somebody else was first: ${error.message}`;
  }
  return error instanceof Error ? error.message : String(error);
}

/** What a form's fields hold, without the empty ones. */
export function filled(form: HTMLFormElement): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [name, value] of new FormData(form)) {
    if (typeof value === "string" && value !== "") found[name] = value;
  }
  return found;
}
