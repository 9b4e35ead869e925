/** One rollout: its state, what an operator may do with it, and how far each terminal is. */

import { useState } from "preact/hooks";
import type { Rollout, RolloutTerminal } from "../api/types";
import { useLive } from "../shell/context";
import { useMayOperateOwn } from "../shell/may-operate";
import { Failure, useRead } from "../shell/read";
import { Table } from "../shell/table";
import { stageText } from "./rollout-text";

/** They are read with the rollout, which is read more often. */
const READ_EVERY_MS = 60_000;
const SHOWN_TERMINALS = 200;
/** An operator can change it no more. */
const ENDED = ["aborted", "aborting", "done"];

interface Props {
  of: Rollout;
  /** Sets its state; with `restore`, terminals that have the change get what was set before. */
  set: (one: Rollout, state: string, restore?: boolean) => void;
}

export function RolloutSection({ of: one, set }: Props) {
  const [isOpen, setOpen] = useState(false);
  const heading = `rollout-${one.id}`;
  return (
    <section aria-labelledby={heading}>
      <h2 id={heading}>{one.name}</h2>
      <p>
        <span class={`badge ${badgeOf(one)}`}>{one.state}</span> {stageText(one)}; {countsOf(one)}
      </p>
      {one.reason && <p class="flaw">{one.reason}</p>}
      <Actions of={one} set={set} />
      <button type="button" aria-expanded={isOpen} aria-label={`Terminals of ${one.name}`} onClick={() => setOpen(!isOpen)}>
        Terminals
      </button>
      {isOpen && <Terminals of={one} />}
    </section>
  );
}

function Actions({ of: one, set }: Props) {
  if (!useMayOperateOwn() || ENDED.includes(one.state)) return null;
  const abort = (restore: boolean) => {
    const then = restore ? "Terminals that have the change get what was set before." : "Terminals keep what they have.";
    if (confirm(`Abort ${one.name} for good? ${then}`)) set(one, "aborted", restore);
  };
  return (
    <>
      {one.state === "running" ? (
        <button type="button" aria-label={`Pause ${one.name}`} onClick={() => set(one, "paused")}>
          Pause
        </button>
      ) : (
        <button type="button" aria-label={`Resume ${one.name}`} onClick={() => set(one, "running")}>
          Resume
        </button>
      )}{" "}
      <button type="button" aria-label={`Abort and restore: ${one.name}`} onClick={() => abort(true)}>
        Abort and restore
      </button>{" "}
      <button type="button" aria-label={`Abort and keep: ${one.name}`} onClick={() => abort(false)}>
        Abort and keep
      </button>{" "}
    </>
  );
}

function Terminals({ of: one }: { of: Rollout }) {
  const { client } = useLive();
  const path = `v1/rollouts/${one.id}/terminals?limit=${SHOWN_TERMINALS}`;
  const read = useRead<{ terminals: RolloutTerminal[]; next?: string | null }>(
    (signal) => client.get(path, signal),
    path,
    READ_EVERY_MS,
    // As new as the counts, so that no row contradicts them for long.
    one,
  );
  return (
    <>
      <Failure of={read} />
      {read.value?.next && <p class="count">The first {SHOWN_TERMINALS}; the API has all.</p>}
      <Table label={`Terminals of ${one.name}`} columns={[{ number: "Terminal" }, { number: "Stage" }, "How far", "Why"]}>
        {read.value?.terminals.map((terminal) => (
          <tr key={terminal.terminal}>
            <th scope="row" class="number">
              {terminal.terminal}
            </th>
            <td class="number">{terminal.stage}</td>
            <td>{terminal.late ? `${terminal.progress}, late` : terminal.progress}</td>
            <td>{terminal.reason}</td>
          </tr>
        ))}
      </Table>
    </>
  );
}

/** "3 pending, 1 confirmed": zero counts are left out. */
function countsOf(one: Rollout): string {
  const there = Object.entries(one.counts).filter(([, count]) => count > 0);
  return there.map(([name, count]) => `${count} ${name.replace("_", " ")}`).join(", ");
}

function badgeOf({ state }: Rollout): string {
  if (state === "stopped") return "down";
  return state === "running" || state === "done" ? "up" : "waiting";
}
