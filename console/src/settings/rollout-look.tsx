/** What a rollout would change, asked of the service before it begins. */

import type { Client } from "../api/client";
import type { SettingsChange, SettingsPreview, Terminal } from "../api/types";
import { useLive } from "../shell/context";
import { ChangedSettings } from "./changed-settings";
import { Look } from "./look";
import { orderOf, previewOf } from "./rollout-text";

/** A rollout that may begin, and what it would change of the terminal that comes first. */
export interface Seen {
  body: Record<string, unknown>;
  /** Of how many terminals, as far as they are known here. */
  count: number;
  /** None is known here without it. */
  first?: { node: number; changes: SettingsChange[]; unreported: string[] };
}

/** Asks what a rollout would change; throws if the service would refuse the settings. */
export async function seenOf(client: Client, body: Record<string, unknown>, known: Iterable<Terminal>): Promise<Seen> {
  const order = orderOf(body, known);
  const [node] = order;
  if (node === undefined) return { body, count: 0 };
  const { changes, unreported_paths } = await client.post<SettingsPreview>(previewOf(node, body), body.settings);
  return { body, count: order.length, first: { node, changes, unreported: unreported_paths ?? [] } };
}

interface Props {
  seen: Seen;
  begin: () => void;
  leave: () => void;
}

export function RolloutLook({ seen: { body, count, first }, begin, leave }: Props) {
  const { fleet } = useLive();
  const name = String(body.name);
  return (
    <Look title={`What ${name} would change`} note="It begins at once, with the first stage." action={`Begin ${name}`} act={begin} leave={leave}>
      {first ? (
        <>
          <p class="count">
            Terminals: {count}. The first is {fleet.nameOf(first.node)}, {first.node}; of the others other settings may be
            set now.
          </p>
          {first.changes.length === 0 && <p>Nothing of the first one: all of it is set already.</p>}
          {first.changes.length > 0 && <ChangedSettings label={`Changes of ${fleet.nameOf(first.node)}`} changes={first.changes} />}
          {first.unreported.length > 0 && (
            <p class="flaw">
              {fleet.nameOf(first.node)} has reported no path {first.unreported.join(", ")}: unless it has it all the
              same, it refuses the change.
            </p>
          )}
        </>
      ) : (
        <p>No terminal that it is for is known here.</p>
      )}
    </Look>
  );
}
