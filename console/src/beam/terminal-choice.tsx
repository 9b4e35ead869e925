import { useId, useMemo } from "preact/hooks";
import { useLive } from "../shell/context";

/** "Bus 9" before "Bus 10". */
const ORDER = new Intl.Collator(undefined, { numeric: true });

interface Props {
  beam: string;
  value: number | undefined;
  onChange: (node: number | undefined) => void;
}

/** One of a beam's terminals. */
export function TerminalChoice({ beam, value, onChange }: Props) {
  const live = useLive();
  const id = useId();
  const { terminals, changes } = live.fleet;
  // Drawn again each second: hundreds of names are sorted when one of them has changed.
  const options = useMemo(() => {
    const found = [...terminals.values()].filter((one) => one.beam === beam);
    found.sort((a, b) => ORDER.compare(a.name, b.name) || a.node - b.node);
    return found.map((one) => (
      <option key={one.node} value={String(one.node)}>
        {one.name}
      </option>
    ));
  }, [terminals, changes, beam]);
  return (
    <p>
      <label for={id}>Terminal</label>{" "}
      <select
        id={id}
        value={value === undefined ? "" : String(value)}
        onChange={(event) => onChange(event.currentTarget.value ? Number(event.currentTarget.value) : undefined)}
      >
        <option value="">choose one</option>
        {options}
      </select>
    </p>
  );
}
