/** A rollout that was begun on this page: followed, and controlled. */

import { useEffect, useRef, useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { Rollout } from "../api/types";
import { useLive } from "../shell/context";
import { Flaw } from "../shell/form";
import { Failure, useRead } from "../shell/read";
import { hashOf } from "../shell/route";
import { RolloutSection } from "./rollout-section";

/** A tenant's users get no events about rollouts. */
const READ_EVERY_MS = 5_000;
/** Once it has ended. */
const SELDOM_MS = 60_000;

interface Props {
  begun: Rollout;
  /** Called at first, and whenever its state or a terminal's progress has changed. */
  onChange: () => void;
}

export function RolloutProgress({ begun, onChange }: Props) {
  const live = useLive();
  const known = useRef(begun);
  const [turn, setTurn] = useState(0);
  const [flaw, setFlaw] = useState<string>();
  const path = `v1/rollouts/${begun.id}`;
  const everyMs = ["aborted", "done"].includes(known.current.state) ? SELDOM_MS : READ_EVERY_MS;
  const read = useRead((signal) => live.client.get<Rollout>(path, signal), path, everyMs, turn);
  // What a change was answered with is newer than what was read before it.
  if (read.value && read.value.revision >= known.current.revision) known.current = read.value;
  const again = () => setTurn((before) => before + 1);
  useEffect(() => live.listen(({ kind, data }) => void (kind === "rollout" && data.rollout === begun.id && again())), [live]);
  const set = async (one: Rollout, state: string, restore = false) => {
    setFlaw(undefined);
    try {
      known.current = await live.client.send<Rollout>("PUT", `${path}/state`, { state, restore }, one.revision);
    } catch (error) {
      setFlaw(textOf(error));
    }
    again();
  };
  const one = known.current;
  useEffect(onChange, [one.changed]);
  return (
    <>
      {/* Only the state is read out: counts change with each terminal. */}
      <p class="hidden" role="status">
        {one.name} is {one.state}.
      </p>
      <Failure of={read} />
      <Flaw>{flaw}</Flaw>
      <RolloutSection of={one} set={(...what) => void set(...what)} />
      <p class="note">
        It goes on without this page, and is listed under <a href={hashOf("settings", "rollouts")}>Settings, Rollouts</a>.
      </p>
    </>
  );
}
