/** What a page reads again and again: with what went wrong in words, and without overlaps. */

import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../api/client";

export interface Read<T> {
  value: T | undefined;
  failure: string | undefined;
}

/** Reads at once, when `key` changes, and each `everyMs` while the page is seen. */
export function useRead<T>(read: (signal: AbortSignal) => Promise<T>, key: string, everyMs: number): Read<T> {
  const [state, setState] = useState<Read<T>>({ value: undefined, failure: undefined });
  useEffect(() => {
    const ended = new AbortController();
    let timer: number | undefined;
    const again = async () => {
      try {
        if (!document.hidden) {
          const value = await read(ended.signal);
          if (!ended.signal.aborted) setState({ value, failure: undefined });
        }
      } catch (error) {
        if (ended.signal.aborted) return;
        const failure = error instanceof ApiError ? error.message : String(error);
        setState((before) => ({ ...before, failure }));
      }
      if (!ended.signal.aborted) timer = window.setTimeout(() => void again(), everyMs);
    };
    setState({ value: undefined, failure: undefined });
    void again();
    return () => {
      ended.abort();
      clearTimeout(timer);
    };
  }, [key, everyMs]);
  return state;
}

export function Failure({ of }: { of: Read<unknown> }) {
  return of.failure === undefined ? null : <p class="flaw" role="alert">{of.failure}</p>;
}
