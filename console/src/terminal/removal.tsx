import { useState } from "preact/hooks";
import { textOf } from "../access/listed";
import { ApiError, type Client } from "../api/client";
import { readToChange } from "../api/revised";
import type { Terminal } from "../api/types";
import { useLive } from "../shell/context";
import { Flaw } from "../shell/form";
import { useMayOperate } from "../shell/may-operate";

/** Asks, and removes a terminal if it still is the vehicle that the operator saw; does nothing if not confirmed. */
export async function remove(client: Client, seen: Terminal, ask: (what: string) => boolean): Promise<void> {
  const what =
    `Remove ${seen.name}, terminal ${seen.node}? All that it has reported is deleted, and its tokens are revoked. ` +
    "Its certificates stay good: if its equipment is lost, revoke them first.";
  if (!ask(what)) return;
  const path = `v1/terminals/${seen.node}`;
  const { value, revision } = await readToChange<Terminal>(client, path);
  if (value.name !== seen.name || value.beam !== seen.beam) {
    throw new Error(`Nothing was done, since somebody else was first: it is ${value.name} of beam ${value.beam} by now.`);
  }
  try {
    await client.delete(path, revision);
  } catch (error) {
    // Months of reports may take longer to delete than an answer is waited for.
    if (error instanceof ApiError && error.status === 0) throw new Error(`${error.message}: it may be removed all the same`);
    throw error;
  }
}

/** Removes the terminal of a vehicle that has left the fleet. */
export function Removal({ terminal }: { terminal: Terminal }) {
  const { client } = useLive();
  const [busy, setBusy] = useState(false);
  const [flaw, setFlaw] = useState<string>();
  if (!useMayOperate()) return null;
  const start = async () => {
    if (busy) return;
    setBusy(true);
    setFlaw(undefined);
    try {
      // Once it is removed, an event takes it off the page.
      await remove(client, terminal, (what) => confirm(what));
    } catch (error) {
      setFlaw(textOf(error));
    }
    setBusy(false);
  };
  return (
    <section class="card" aria-labelledby="removal">
      <h2 id="removal">Remove</h2>
      <button type="button" aria-disabled={busy} onClick={() => void start()}>
        Remove the terminal
      </button>
      <Flaw>{flaw}</Flaw>
    </section>
  );
}
