/** The theme's colours for the map and the charts, which style sheets do not reach. */

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

/** Reads their present values, as "rgb(…)". */
export function palette(): Palette {
  return coloursOf(NAMES);
}

/** Reads custom properties of the style sheets that hold colours. */
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

/** Calls back when the button or the system changes the theme. */
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
