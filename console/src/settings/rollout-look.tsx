/** What a rollout would change, asked of the service before it begins. */

import type { Client } from "../api/client";
import type { SettingsChange, Terminal } from "../api/types";
import { useLive } from "../shell/context";
import { useFocusInside } from "../shell/focus";
import { ChangedSettings } from "./changed-settings";
import { orderOf, previewOf } from "./rollout-text";

/** A rollout that may begin, and what it would change of the terminal that comes first. */
export interface Seen {
  body: Record<string, unknown>;
  /** Of how many terminals, as far as they are known here. */
  count: number;
  /** None is known here without it. */
  first?: { node: number; changes: SettingsChange[] };
}

/** Asks what a rollout would change; throws if the service would refuse the settings. */
export async function seenOf(client: Client, body: Record<string, unknown>, known: Iterable<Terminal>): Promise<Seen> {
  const order = orderOf(body, known);
  const [node] = order;
  if (node === undefined) return { body, count: 0 };
  const { changes } = await client.post<{ changes: SettingsChange[] }>(previewOf(node, body), body.settings);
  return { body, count: order.length, first: { node, changes } };
}

interface Props {
  seen: Seen;
  begin: () => void;
  leave: () => void;
}

export function RolloutLook({ seen: { body, count, first }, begin, leave }: Props) {
  const { fleet } = useLive();
  const part = useFocusInside<HTMLElement>();
  const name = String(body.name);
  return (
    <section ref={part} tabIndex={-1} aria-labelledby="rollout-changes">
      <h2 id="rollout-changes">What {name} would change</h2>
      {first ? (
        <>
          <p class="count">
            Terminals: {count}. The first is {fleet.nameOf(first.node)}, {first.node}; of the others other settings may be
            set now.
          </p>
          {first.changes.length === 0 && <p>Nothing of the first one: all of it is set already.</p>}
          {first.changes.length > 0 && <ChangedSettings label={`Changes of ${fleet.nameOf(first.node)}`} changes={first.changes} />}
        </>
      ) : (
        <p>No terminal that it is for is known here.</p>
      )}
      <p class="note">It begins at once, with the first stage.</p>
      <p class="tools">
        <button type="button" onClick={begin}>
          Begin {name}
        </button>
        <button type="button" onClick={leave}>
          Leave it
        </button>
      </p>
    </section>
  );
}
