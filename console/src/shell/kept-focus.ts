/**
 * Keeps the keyboard's place: what has the focus may be moved or removed at any time, as when a list is read again
 * and is in another order, a dialog's subject is gone, or another user changes it.
 */

import { useEffect } from "preact/hooks";

/** What may get the focus of something in it that is gone. */
const PART = "[tabindex], section";
/** What stands in place of what is gone, as a dialog that was opened, may take the focus by itself. */
const SETTLE_MS = 50;

/** Keeps it within the page's content, for as long as the page is shown. */
export function useKeptFocus(): void {
  useEffect(() => {
    const content = document.getElementById("content");
    return content ? keepFocus(content) : undefined;
  }, []);
}

/** Keeps the place within an element; returns what ends that. */
export function keepFocus(within: HTMLElement): () => void {
  let last: HTMLElement | undefined;
  let parts: HTMLElement[] = [];
  const take = (element: EventTarget | null) => {
    last = element instanceof HTMLElement && element !== within && within.contains(element) ? element : undefined;
    // Once it is gone, nobody knows any more what was around it.
    parts = partsAround(last);
  };
  // The keyboard may also have gone on in the browser's own bars, or in another window.
  const lost = () => last !== undefined && document.activeElement === document.body && document.hasFocus();
  const ended = new AbortController();
  const { signal } = ended;
  let isWaiting = false;
  const settle = () => {
    isWaiting = false;
    if (lost() && !signal.aborted) focusFirst(parts);
  };
  const changed = () => {
    if (lost() && last?.isConnected) last.focus({ preventScroll: true });
    if (!lost() || isWaiting) return;
    isWaiting = true;
    // A second timer: on a busy machine the first may be due together with what it waits for.
    setTimeout(() => setTimeout(settle), SETTLE_MS);
  };
  document.addEventListener("focusin", ({ target }) => take(target), { signal });
  // Who clicks on something that takes no focus has given it up.
  document.addEventListener("pointerdown", () => take(null), { capture: true, signal });
  const observer = new MutationObserver(changed);
  observer.observe(within, { childList: true, subtree: true });
  take(document.activeElement);
  return () => {
    ended.abort();
    observer.disconnect();
  };
}

/** The parts of the page around an element, from the inside out. */
function partsAround(element: Element | null | undefined): HTMLElement[] {
  const found: HTMLElement[] = [];
  const next = (one: Element | null | undefined) => one?.parentElement?.closest<HTMLElement>(PART);
  for (let part = next(element); part; part = next(part)) found.push(part);
  return found;
}

/** Focuses the first part that is still there, or else the page's content, wherever the user has scrolled to. */
function focusFirst(parts: readonly HTMLElement[]): void {
  const part = parts.find(({ isConnected }) => isConnected) ?? document.getElementById("content");
  if (part?.matches("section:not([tabindex])")) part.tabIndex = -1;
  part?.focus({ preventScroll: true });
}
