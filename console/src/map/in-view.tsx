/** The obstructions of the map as a list, for whom a click on the map is out of reach. */

import type { Obstruction } from "../api/types";

/** The most that are listed at once. */
const MOST_LISTED = 100;

interface Props {
  obstructions: readonly Obstruction[];
  /** The id of the selected one. */
  selected: string | undefined;
  /** Called with none if the selected one is pressed again. */
  select: (obstruction: Obstruction | undefined) => void;
}

export function InView({ obstructions, selected, select }: Props) {
  const count = obstructions.length;
  if (count === 0) return null;
  return (
    <details class="in-view">
      <summary>Obstructions in view: {count}</summary>
      {count > MOST_LISTED && <p class="count">The first {MOST_LISTED}; closer to the ground there are fewer.</p>}
      <ul aria-label="Obstructions in view">
        {inOrder(obstructions).slice(0, MOST_LISTED).map((one) => (
          <li key={one.id}>
            <button type="button" aria-pressed={one.id === selected} onClick={() => select(one.id === selected ? undefined : one)}>
              {titleOf(one)}, {one.properties.kind}
            </button>
          </li>
        ))}
      </ul>
    </details>
  );
}

export function titleOf({ id, properties: { name } }: Obstruction): string {
  return name || id;
}

/** By their titles, those with names first. */
export function inOrder(obstructions: readonly Obstruction[]): Obstruction[] {
  const isUnnamed = (one: Obstruction) => Number(!one.properties.name);
  return [...obstructions].sort(
    (a, b) => isUnnamed(a) - isUnnamed(b) || titleOf(a).localeCompare(titleOf(b)) || a.id.localeCompare(b.id),
  );
}
