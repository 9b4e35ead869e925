/** What differs between two states, as text: `name: "old" → "new"`. */

type State = Record<string, unknown> | null | undefined;

const LONGEST = 400;

export function differences(before: State, after: State): string {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  const parts = names.flatMap((name) => {
    const [was, is] = [shown(before?.[name]), shown(after?.[name])];
    if (was === is) return [];
    if (was === "") return [`${name}: ${is}`];
    return [`${name}: ${was} → ${is || "nothing"}`];
  });
  const text = parts.join("; ");
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

function shown(value: unknown): string {
  return value === undefined || value === null ? "" : JSON.stringify(value);
}
