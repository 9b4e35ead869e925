/** A part of the console that is loaded only when first shown, or after the first page. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

type Load<P> = () => Promise<{ default: ComponentType<P> }>;

const small: (() => Promise<unknown>)[] = [];

/** Loads all small parts ahead: the service may be unreachable when they are first shown. */
export function loadSmallParts(): void {
  for (const load of small) load().catch(() => undefined);
}

export function later<P extends object>(load: Load<P>, size: "small" | "large" = "small"): ComponentType<P> {
  let loaded: ComponentType<P> | undefined;
  if (size === "small") small.push(load);
  return function Later(props: P) {
    const [, done] = useState(loaded !== undefined);
    const [failed, setFailed] = useState(false);
    useEffect(() => {
      if (loaded) return;
      load().then(
        (part) => {
          loaded = part.default;
          done(true);
        },
        () => setFailed(true),
      );
    }, []);
    const Part = loaded;
    if (Part) return <Part {...props} />;
    // A new version may have been installed since, whose files have other names.
    return (
      <p class="note" role="status">
        {failed ? "not loaded: reload the page" : "loading…"}
      </p>
    );
  };
}
