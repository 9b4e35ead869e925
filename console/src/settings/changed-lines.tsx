import { type Line, withoutTheRest } from "./line-differences";

/** The lines shown around each that differs. */
const AROUND = 3;
const MOST_LINES = 500;
const SIGNS = { same: " ", removed: "-", added: "+", gap: "…" } as const;

/** The lines that differ between two texts, with some around them. */
export function ChangedLines({ label, lines }: { label: string; lines: readonly Line[] }) {
  const near = withoutTheRest(lines, AROUND);
  const shown = near.slice(0, MOST_LINES);
  const count = (wanted: Line["kind"]) => lines.filter(({ kind }) => kind === wanted).length;
  return (
    <>
      <p class="count">
        Lines removed: {count("removed")}, added: {count("added")}.
        {near.length > shown.length && ` The first ${shown.length} of ${near.length}, with those around them.`}
      </p>
      <pre class="lines scroll" tabIndex={0} role="region" aria-label={label}>
        {shown.map(({ kind, text }, place) => {
          const Of = kind === "removed" ? "del" : kind === "added" ? "ins" : "span";
          return (
            <Of key={place}>
              {SIGNS[kind]} {text}
              {"\n"}
            </Of>
          );
        })}
      </pre>
    </>
  );
}
