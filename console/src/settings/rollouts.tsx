/** Rollouts, changes of settings in stages: starts them, shows progress, pauses, resumes, aborts. */

import { useEffect, useState } from "preact/hooks";
import { useListed } from "../access/listed";
import type { Rollout, RolloutTerminal } from "../api/types";
import { useLive } from "../shell/context";
import { Flaw } from "../shell/form";
import { useMayOperateOwn } from "../shell/may-operate";
import { Failure, useRead } from "../shell/read";
import { Table } from "../shell/table";
import { RolloutForm } from "./rollout-form";

const READ_EVERY_MS = 10_000;
const SHOWN = 50;
const SHOWN_TERMINALS = 200;
const ENDED = ["aborted", "aborting", "done"];

export function Rollouts() {
  const live = useLive();
  const [open, setOpen] = useState<number>();
  const mayOperate = useMayOperateOwn();
  const [said, setSaid] = useState<string>();
  const { entries, flaw, members, change, reread } = useListed<Rollout>("v1/rollouts", "rollouts", {
    most: SHOWN,
    // A tenant's users get no events about rollouts.
    everyMs: READ_EVERY_MS,
  });
  useEffect(() => live.listen(({ kind }) => void (kind === "rollout" && reread())), [live]);
  const set = (one: Rollout, state: string, restore = false) =>
    void change(() => live.client.send("PUT", `v1/rollouts/${one.id}/state`, { state, restore }, one.revision));
  const make = async (body: Record<string, unknown>) => {
    setSaid(undefined);
    const done = await change(() => live.client.post("v1/rollouts", body));
    if (done) setSaid(`${body.name} has begun.`);
    return done;
  };
  return (
    <>
      <p>
        One change for many terminals: a few have to confirm it before the others get it, and a terminal that does not
        hear its hub afterwards takes it back.
      </p>
      {mayOperate && <RolloutForm members={members} change={change} make={make} />}
      <Flaw>{flaw}</Flaw>
      <p role="status">{said}</p>
      {entries?.length === 0 && <p>There are none.</p>}
      {entries && entries.length >= SHOWN && <p class="count">The newest {SHOWN}; the API has all.</p>}
      {entries?.map((one) => (
        <section key={one.id} aria-labelledby={`rollout-${one.id}`}>
          <h2 id={`rollout-${one.id}`}>{one.name}</h2>
          <p>
            <span class={`badge ${badgeOf(one)}`}>{one.state}</span> stage {one.stage} of {one.stages.length + 1} (
            {[...one.stages, "the rest"].join(", ")}); {countsOf(one)}
          </p>
          {one.reason && <p class="flaw">{one.reason}</p>}
          <Actions of={one} set={set} />
          <button
            type="button"
            aria-expanded={open === one.id}
            aria-label={`Terminals of ${one.name}`}
            onClick={() => setOpen(open === one.id ? undefined : one.id)}
          >
            Terminals
          </button>
          {open === one.id && <Terminals of={one} />}
        </section>
      ))}
    </>
  );
}

interface ActionsProps {
  of: Rollout;
  set: (one: Rollout, state: string, restore?: boolean) => void;
}

function Actions({ of: one, set }: ActionsProps) {
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
