import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keepFocus } from "../src/shell/kept-focus";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

class Element {
  isConnected = true;
  tabIndex = 0;

  constructor(
    readonly page: { activeElement: Element | undefined },
    readonly parentElement?: Element,
    readonly isSection = false,
  ) {}

  /** Every element that is around another one here is a part that may get its focus. */
  closest(): Element {
    return this;
  }

  matches(): boolean {
    return this.isSection;
  }

  contains(other: Element | undefined): boolean {
    return other !== undefined && (other === this || this.contains(other.parentElement));
  }

  focus(how?: FocusOptions): void {
    scrolled = !how?.preventScroll;
    this.page.activeElement = this;
    listeners.focusin?.({ target: this });
  }
}

let listeners: Record<string, (event: { target: unknown }) => void> = {};
let changed = () => {};
let hasFocus = true;
let scrolled = false;

/** A page with a button in a card, within the content. */
function made() {
  listeners = {};
  hasFocus = true;
  const page: { activeElement: Element | undefined; body?: Element } = { activeElement: undefined };
  const body = new Element(page);
  const content = new Element(page);
  const card = new Element(page, content, true);
  const button = new Element(page, card);
  page.body = body;
  vi.stubGlobal("HTMLElement", Element);
  vi.stubGlobal(
    "MutationObserver",
    class {
      constructor(callback: () => void) {
        changed = callback;
      }
      observe() {}
      disconnect() {}
    },
  );
  Object.assign(page, {
    addEventListener: (kind: string, listener: (typeof listeners)[string]) => void (listeners[kind] = listener),
    getElementById: () => content,
    hasFocus: () => hasFocus,
  });
  vi.stubGlobal("document", page);
  keepFocus(content as unknown as HTMLElement);
  /** Takes the focus from what has it, as the browser does for what is moved or removed. */
  const lose = () => void (page.activeElement = body);
  return { page, body, content, card, button, lose };
}

test("what is moved keeps the focus", () => {
  const { page, button, lose } = made();
  button.focus();
  lose();
  changed();
  expect(page.activeElement).toBe(button);
  expect(scrolled).toBe(false);
});

test("the focus of what is gone goes to what is around it and still there", () => {
  const { page, body, content, card, button, lose } = made();
  button.focus();
  button.isConnected = false;
  lose();
  changed();
  // What had been opened may give the focus back first.
  expect(page.activeElement).toBe(body);
  vi.runAllTimers();
  expect(page.activeElement).toBe(card);
  // The user may be reading elsewhere.
  expect(scrolled).toBe(false);
  // A card takes no focus by itself.
  expect(card.tabIndex).toBe(-1);
  card.isConnected = false;
  lose();
  changed();
  vi.runAllTimers();
  expect(page.activeElement).toBe(content);
});

test("the focus stays where the user has gone, and away if the user has left", () => {
  const { page, body, button, lose } = made();
  const elsewhere = new Element(page);
  button.focus();
  elsewhere.focus();
  button.isConnected = false;
  lose();
  changed();
  vi.runAllTimers();
  expect(page.activeElement).toBe(body);
  button.isConnected = true;
  button.focus();
  lose();
  hasFocus = false;
  changed();
  expect(page.activeElement).toBe(body);
  hasFocus = true;
  button.focus();
  listeners.pointerdown?.({ target: body });
  lose();
  changed();
  vi.runAllTimers();
  expect(page.activeElement).toBe(body);
});
