import type { ComponentChildren } from "preact";

interface Props {
  /** The table's name, for screen readers. */
  label: string;
  columns: readonly Column[];
  children: ComponentChildren;
}

/** A column's head; `number` for a column of numbers. */
export type Column = string | { number: string };

/** A table that scrolls on its own, also by the keyboard; the children are its rows. */
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
