/** Repeated reads for a page: errors in words, and no overlapping requests. */

import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api/client";

export interface Read<T> {
  value: T | undefined;
  failure: string | undefined;
}

const SOON_MS = 15_000;
const NOTHING = { value: undefined, failure: undefined };

/**
 * Reads at once, when `key` or `turn` changes, and every `everyMs` while the page is visible. What
 * was read of the same key stays until it is read again.
 */
export function useRead<T>(
  read: (signal: AbortSignal) => Promise<T>,
  key: string,
  everyMs: number,
  turn?: unknown,
): Read<T> {
  const [state, setState] = useState<Read<T> & { key: string }>({ key, ...NOTHING });
  useEffect(() => {
    const ended = new AbortController();
    let timer: number | undefined;
    // After an error, or while hidden, a value that is read seldom is tried again sooner.
    const soonMs = Math.min(everyMs, SOON_MS);
    const again = async () => {
      let waitMs = document.hidden ? soonMs : everyMs;
      try {
        if (!document.hidden) {
          const value = await read(ended.signal);
          if (!ended.signal.aborted) setState({ key, value, failure: undefined });
        }
      } catch (error) {
        if (ended.signal.aborted) return;
        const failure = error instanceof ApiError ? error.message : String(error);
        // Not before the time that the service asks for.
        waitMs = Math.max(soonMs, error instanceof ApiError ? error.afterMs : 0);
        setState((before) => ({ key, value: before.key === key ? before.value : undefined, failure }));
      }
      if (!ended.signal.aborted) timer = window.setTimeout(() => void again(), waitMs);
    };
    void again();
    return () => {
      ended.abort();
      clearTimeout(timer);
    };
  }, [key, everyMs, turn]);
  return state.key === key ? state : NOTHING;
}

export function Failure({ of }: { of: Pick<Read<unknown>, "failure"> }) {
  return of.failure === undefined ? null : <p class="flaw" role="alert">{of.failure}</p>;
}
