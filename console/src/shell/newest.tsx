/** A list of which the newest entries are shown, and older ones on demand. */

import { useRef, useState } from "preact/hooks";
import { useLive } from "./context";
import { useRead } from "./read";

/** The most entries of a list; the API has all. */
const MOST = 1_000;
const GROWS_BY = 4;

export interface Newest<T> {
  /** Absent until they are read. */
  entries: T[] | undefined;
  failure: string | undefined;
  /** How many are read at most now. */
  most: number;
  /** Whether older ones were asked for and have not come yet. */
  isReading: boolean;
  /** Whether the service may have older ones that can be shown. */
  hasOlder: boolean;
  showOlder: () => void;
}

/**
 * Reads the first entries of a list that has the newest first, every `everyMs`; a longer list more
 * seldom. The path stays the same: a component with another one needs a key of its own.
 */
export function useNewest<T>(path: string, member: string, first: number, everyMs: number): Newest<T> {
  const { client } = useLive();
  const [most, setMost] = useState(first);
  const read = useRead((signal) => client.all<T>(path, member, signal, most), `${path} ${most}`, (everyMs * most) / first);
  // Those that are known stay while older ones are read, too.
  const known = useRef<T[]>(undefined);
  if (read.value) known.current = read.value;
  const entries = known.current;
  return {
    entries,
    failure: read.failure,
    most,
    // A read that has failed is tried again.
    isReading: read.value === undefined,
    hasOlder: mayHaveOlder(entries?.length ?? 0, most),
    showOlder: () => setMost(grown(most)),
  };
}

/** Whether a list of which at most so many were read may have more that can be shown. */
export function mayHaveOlder(count: number, most: number): boolean {
  return count >= most && most < MOST;
}

export function grown(most: number): number {
  return Math.min(MOST, GROWS_BY * most);
}

interface Props {
  of: Newest<unknown>;
  /** How many are shown at first. */
  first: number;
  what: string;
}

/** The button stays once it was used: a keyboard user would lose the focus. */
export function Older({ of: { hasOlder, isReading, most, showOlder }, first, what }: Props) {
  if (!hasOlder && most === first) return null;
  return (
    <button type="button" aria-disabled={!hasOlder} onClick={() => hasOlder && showOlder()}>
      {hasOlder ? `Show older ${what}` : isReading ? "reading…" : `No older ${what} are shown here`}
    </button>
  );
}
