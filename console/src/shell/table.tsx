import type { ComponentChildren } from "preact";

interface Props {
  /** What it lists, for those who do not see it. */
  label: string;
  columns: readonly Column[];
  children: ComponentChildren;
}

/** A column's head, and whether numbers are below it. */
export type Column = string | { number: string };

/** A table that scrolls by itself, by the keyboard too; the children are its rows. */
export function Table({ label, columns, children }: Props) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => {
              const text = typeof column === "string" ? column : column.number;
              return (
                <th key={text} scope="col" class={typeof column === "string" ? undefined : "number"}>
                  {text}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
