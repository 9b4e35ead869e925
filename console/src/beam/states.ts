/** What the states of a plan's segments mean, and how they are drawn. */

import type { SegmentState } from "../api/types";

export const STATES: Record<SegmentState, { text: string; alpha: number; hatch: "up" | "down" | "none" }> = {
  fair: { text: "fair share", alpha: 0.5, hatch: "none" },
  borrowing: { text: "borrows, before its blockage", alpha: 1, hatch: "up" },
  lending: { text: "lends to who will be blocked", alpha: 0.3, hatch: "none" },
  blocked: { text: "blocked", alpha: 0, hatch: "none" },
  repaid: { text: "is repaid what it lent", alpha: 0.8, hatch: "down" },
  repaying: { text: "repays what it borrowed", alpha: 0.2, hatch: "none" },
};

/** Colours of terminals that can be told apart on light and on dark (Okabe and Ito, 2008). */
const COLOURS: [number, number, number][] = [
  [0, 114, 178],
  [230, 159, 0],
  [0, 158, 115],
  [204, 121, 167],
  [86, 180, 233],
  [213, 94, 0],
  [160, 150, 40],
  [120, 120, 200],
];
const OTHERS: [number, number, number] = [140, 140, 140];

/** The colour of the terminal at a place of the list; undefined: of all others. */
export function colourOf(place: number | undefined, alpha = 1): string {
  const [red, green, blue] = place === undefined ? OTHERS : (COLOURS[place % COLOURS.length] ?? OTHERS);
  return `rgba(${red}, ${green}, ${blue}, ${alpha})`;
}
