import { useId } from "preact/hooks";
import { useLive } from "../shell/context";

interface Props {
  beam: string;
  value: number | undefined;
  onChange: (node: number | undefined) => void;
}

/** One of a beam's terminals. */
export function TerminalChoice({ beam, value, onChange }: Props) {
  const live = useLive();
  const id = useId();
  const terminals = [...live.fleet.terminals.values()].filter((one) => one.beam === beam);
  return (
    <p>
      <label for={id}>Terminal</label>{" "}
      <select
        id={id}
        value={value === undefined ? "" : String(value)}
        onChange={(event) => onChange(event.currentTarget.value ? Number(event.currentTarget.value) : undefined)}
      >
        <option value="">choose one</option>
        {terminals.map((one) => (
          <option key={one.node} value={String(one.node)}>
            {one.name}
          </option>
        ))}
      </select>
    </p>
  );
}
