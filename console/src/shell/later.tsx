/** A part of the console that is loaded when it is first shown, after what is there already. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

type Load<P> = () => Promise<{ default: ComponentType<P> }>;

const small: (() => Promise<unknown>)[] = [];

/** Loads all parts that are small: the service may be away when they are first shown. */
export function loadSmallParts(): void {
  for (const load of small) load().catch(() => undefined);
}

export function later<P extends object>(
  load: Load<P>,
  what: string,
  size: "small" | "large" = "small",
): ComponentType<P> {
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
    // Another version may have been installed since: its files have other names.
    const text = failed ? `${what} could not be loaded: reload the page` : `loading ${what}…`;
    return (
      <p class="note" role="status">
        {text}
      </p>
    );
  };
}
