import { useLayoutEffect, useRef } from "preact/hooks";

/**
 * The reference of a part of the page that opens on demand: its first field, or else the part itself, gets the
 * focus, and once the part is gone, what had the focus before gets it back.
 */
export function useFocusInside<E extends HTMLElement>(isOpen = true) {
  const part = useRef<E>(null);
  // At once: a click may otherwise come first, and what it focuses would count as what had the focus before.
  useLayoutEffect(() => {
    const { current } = part;
    if (!isOpen || !current) return undefined;
    const before = document.activeElement;
    (current.querySelector<HTMLElement>("input, select, textarea") ?? current).focus();
    return () => {
      const { activeElement: now } = document;
      // The user may have gone elsewhere meanwhile.
      const isHere = now === document.body || current.contains(now);
      if (isHere && before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, [isOpen]);
  return part;
}
