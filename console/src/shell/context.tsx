/** What every page needs: the live fleet, the session, and regular rendering. */

import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Session } from "../api/types";
import type { Live } from "../fleet/live";

export const LiveContext = createContext<Live | undefined>(undefined);

/** Who is signed in; undefined until the service has said. */
export const SessionContext = createContext<Session | undefined>(undefined);

export function useLive(): Live {
  const live = useContext(LiveContext);
  if (!live) throw new Error("no live fleet around it");
  return live;
}

/** Renders a component every `everyMs`: clocks run, and events come by the hundred. */
export function useTick(everyMs = 500): void {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) tick((count) => count + 1);
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}
