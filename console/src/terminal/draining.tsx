import { useEffect } from "preact/hooks";
import { filled, useListed } from "../access/listed";
import type { Intervention } from "../api/types";
import { useLive } from "../shell/context";
import { seconds, utc } from "../shell/format";
import { useMayOperate } from "../shell/may-operate";
import { leftOver, verdict } from "./left-over";

/** Has a terminal run empty before it is taken away: its maintenance, and what still waits meanwhile. */
export default function Draining({ node }: { node: number }) {
  const live = useLive();
  const mayOperate = useMayOperate();
  const path = `v1/interventions?terminal=${node}&kind=maintenance`;
  const { entries, flaw, change, reread } = useListed<Intervention>(path, "interventions");
  useEffect(
    () =>
      live.listen(({ kind, data }) => {
        if (kind === "intervention" && data.terminal === node) reread();
      }),
    [live, node],
  );
  const now = live.now();
  const set = entries?.filter((one) => Date.parse(one.until) > now);
  const drain = (event: Event) => {
    event.preventDefault();
    const given = filled(event.currentTarget as HTMLFormElement);
    const beginMs = now + 60_000 * Number(given.in);
    const body = {
      kind: "maintenance",
      terminal: node,
      // Left out, it is at once.
      ...(Number(given.in) > 0 && { from: new Date(beginMs).toISOString() }),
      until: new Date(beginMs + 60_000 * Number(given.for)).toISOString(),
      ...(given.note && { note: given.note }),
    };
    void change(() => live.client.post("v1/interventions", body));
  };
  const release = (one: Intervention) => void change(() => live.client.delete(`v1/interventions/${one.id}`, one.revision));
  return (
    <section class="card" aria-labelledby="draining">
      <h2 id="draining">Drain</h2>
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
