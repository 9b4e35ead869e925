/** Rollouts, changes of settings in stages: starts them, shows progress, pauses, resumes, aborts. */

import { useEffect, useState } from "preact/hooks";
import { useListed } from "../access/listed";
import type { Rollout } from "../api/types";
import { useLive } from "../shell/context";
import { Flaw } from "../shell/form";
import { useMayOperateOwn } from "../shell/may-operate";
import { RolloutForm } from "./rollout-form";
import { RolloutSection } from "./rollout-section";

const READ_EVERY_MS = 10_000;
const SHOWN = 50;

export function Rollouts() {
  const live = useLive();
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
      {entries?.map((one) => <RolloutSection key={one.id} of={one} set={set} />)}
    </>
  );
}
