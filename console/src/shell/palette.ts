/** The theme's colours, for what style sheets do not reach: the map and the charts. */

export interface Palette {
  ground: string;
  surface: string;
  line: string;
  text: string;
  quiet: string;
  accent: string;
  up: string;
  blocked: string;
  ahead: string;
  down: string;
  silent: string;
}

const NAMES = [
  "ground", "surface", "line", "text", "quiet", "accent", "up", "blocked", "ahead", "down", "silent",
] as const;

/** Reads them as they are now, as "rgb(…)". */
export function palette(): Palette {
  return coloursOf(NAMES);
}

/** Reads custom properties of the style sheets that are colours. */
export function coloursOf<Name extends string>(names: readonly Name[]): Record<Name, string> {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found: Partial<Record<Name, string>> = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found as Record<Name, string>;
}

/** Red, green and blue from 0 to 1. */
export function rgb(colour: string): [number, number, number] {
  const [red = 0, green = 0, blue = 0] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  return [red / 255, green / 255, blue / 255];
}

/** Calls back when the theme changes: by the button, or by the system. */
export function onThemeChange(callback: () => void): () => void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  const observer = new MutationObserver(callback);
  observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  media.addEventListener("change", callback);
  return () => {
    observer.disconnect();
    media.removeEventListener("change", callback);
  };
}
