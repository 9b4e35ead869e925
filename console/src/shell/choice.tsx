interface Props {
  label: string;
  /** What may be chosen, with its text first. */
  of: readonly (readonly [string, unknown])[];
  /** The place of what is chosen. */
  value: number;
  onChange: (place: number) => void;
}

/** One of a few things, by its place among them. */
export function Choice({ label, of, value, onChange }: Props) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(event) => onChange(Number(event.currentTarget.value))}>
        {of.map(([text], place) => (
          <option key={text} value={place}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
