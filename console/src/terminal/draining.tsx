import { useState } from "preact/hooks";
import type { Intervention } from "../api/types";
import { useLive } from "../shell/context";
import { seconds, utc } from "../shell/format";
import { useMayOperate } from "../shell/may-operate";
import { Failure, useRead } from "../shell/read";
import { leftOver, verdict } from "./left-over";

const READ_MS = 3_000;

/** Has a terminal run empty before it is taken away: its maintenance, and what still waits meanwhile. */
export function Draining({ node }: { node: number }) {
  const live = useLive();
  const mayOperate = useMayOperate();
  const path = `v1/interventions?terminal=${node}&kind=maintenance`;
  const found = useRead((signal) => live.client.get<{ interventions: Intervention[] }>(path, signal), path, READ_MS);
  const [flaw, setFlaw] = useState<string>();
  const change = (work: Promise<unknown>) => {
    setFlaw(undefined);
    // What has become of it is read again soon.
    work.catch((error: Error) => setFlaw(error.message));
  };
  const now = live.now();
  const set = found.value?.interventions.filter((one) => Date.parse(one.until) > now);
  const drain = (event: Event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget as HTMLFormElement);
    const inMs = 60_000 * Number(given.get("in"));
    const note = String(given.get("note"));
    const body = {
      kind: "maintenance",
      terminal: node,
      // Left out, it is at once.
      ...(inMs > 0 && { from: new Date(now + inMs).toISOString() }),
      until: new Date(now + inMs + 60_000 * Number(given.get("for"))).toISOString(),
      ...(note && { note }),
    };
    change(live.client.post("v1/interventions", body));
  };
  const release = (one: Intervention) => change(live.client.delete(`v1/interventions/${one.id}`, one.revision));
  return (
    <section class="card" aria-labelledby="draining">
      <h2 id="draining">Drain</h2>
      <Failure of={found} />
      <p class="flaw" role="alert">
        {flaw}
      </p>
      {set?.length === 0 && <p>It is in service.</p>}
      {set?.map((one) => {
        const inMs = Date.parse(one.from) - now;
        return (
          <div key={one.id}>
            <p>
              {inMs > 0
                ? `It drains: until ${utc(Date.parse(one.from))} UTC, for ${seconds(inMs)} more, it has its share to send what waits.`
                : "It is in maintenance: its share is the others'."}{" "}
              In service again at {utc(Date.parse(one.until))} UTC, in {seconds(Date.parse(one.until) - now)}. Set by{" "}
              {one.set_by ?? "an operator"}
              {one.note ? `: ${one.note}` : ""}.
            </p>
            <p role="status">{verdict(leftOver(live.fleet.vehicle(node), now))}</p>
            {mayOperate && (
              <button type="button" onClick={() => release(one)} aria-label={`Back in service, number ${one.id}`}>
                Back in service
              </button>
            )}
          </div>
        );
      })}
      {mayOperate && set?.length === 0 && (
        <form class="tools" aria-label="Drain the terminal" onSubmit={drain}>
          <label>
            Maintenance in, min <input name="in" type="number" min="0" max="1440" step="any" defaultValue="5" required />
          </label>
          <label>
            for, min <input name="for" type="number" min="0.1" max="10080" step="any" defaultValue="30" required />
          </label>
          <label>
            note <input name="note" maxLength={200} />
          </label>
          <button type="submit">Drain</button>
        </form>
      )}
    </section>
  );
}
