interface Props {
  label: string;
  /** The choices, each with its text first. */
  of: readonly (readonly [string, unknown])[];
  /** The index of the choice. */
  value: number;
  onChange: (place: number) => void;
}

/** A choice among a few things, by index. */
export function Choice({ label, of, value, onChange }: Props) {
  return (
    <label>
      {label}{" "}
      {/* If a form that hears `input` rendered before `change`, it would put the former value back. */}
      <select value={value} onInput={(event) => onChange(Number(event.currentTarget.value))}>
        {of.map(([text], place) => (
          <option key={text} value={place}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
