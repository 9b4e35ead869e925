import { useState } from "preact/hooks";
import { textOf } from "../access/listed";
import type { Intervention } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { utcOn } from "../shell/dates";
import { seconds } from "../shell/format";
import { useMayOperate } from "../shell/may-operate";
import { Failure, useRead } from "../shell/read";
import { leftOver, verdict } from "./left-over";

const READ_MS = 3_000;

/** Drains a terminal before it is taken away: sets its maintenance, and shows what still waits. */
export function Draining({ node }: { node: number }) {
  const live = useLive();
  const mayOperate = useMayOperate();
  const path = `v1/interventions?terminal=${node}&kind=maintenance`;
  const found = useRead((signal) => live.client.get<{ interventions: Intervention[] }>(path, signal), path, READ_MS);
  const [flaw, setFlaw] = useState<string>();
  // `useRead` shows the result within seconds.
  const change = (work: Promise<unknown>) => {
    setFlaw(undefined);
    return work.catch((error: unknown) => setFlaw(textOf(error)));
  };
  const now = live.now();
  const left = leftOver(live.fleet.vehicle(node), now);
  const isWaiting = left.waiting.length > 0;
  const set = found.value?.interventions.filter((one) => Date.parse(one.until) > now);
  const drain = async (form: HTMLFormElement) => {
    const given = new FormData(form);
    const inMs = 60_000 * Number(given.get("in"));
    const note = String(given.get("note"));
    const body = {
      kind: "maintenance",
      terminal: node,
      // Without `from` it starts at once.
      ...(inMs > 0 && { from: new Date(now + inMs).toISOString() }),
      until: new Date(now + inMs + 60_000 * Number(given.get("for"))).toISOString(),
      ...(note && { note }),
    };
    await change(live.client.post("v1/interventions", body));
    return false;
  };
  const release = (one: Intervention) => {
    if (confirm("End its maintenance at once? It has its share again, and what is sent to it is sent.")) {
      void change(live.client.delete(`v1/interventions/${one.id}`, one.revision));
    }
  };
  return (
    <section class="card" aria-labelledby="draining">
      <h2 id="draining">Drain</h2>
      <Failure of={found} />
      <Flaw>{flaw}</Flaw>
      {set?.length === 0 && <p>It is in service.</p>}
      {set?.map((one) => {
        const inMs = Date.parse(one.from) - now;
        return (
          <div key={one.id}>
            <p>
              {inMs > 0
                ? `It drains: until ${utcOn(Date.parse(one.from), now)} UTC, for ${seconds(inMs)} more, it has its share to send what waits.`
                : "It is in maintenance: its share is the others'."}{" "}
              In service again at {utcOn(Date.parse(one.until), now)} UTC, in {seconds(Date.parse(one.until) - now)}. Set by{" "}
              {one.set_by ?? "an operator"}
              {one.note ? `: ${one.note}` : ""}.
            </p>
            {isWaiting && <p>{verdict(left)}</p>}
            {/* Bytes that wait change each second: only that none do any more is read out. */}
            <p role="status">{!isWaiting && verdict(left)}</p>
            {mayOperate && (
              <button type="button" onClick={() => release(one)} aria-label={`Back in service, number ${one.id}`}>
                Back in service
              </button>
            )}
          </div>
        );
      })}
      {mayOperate && set?.length === 0 && (
        <Form label="Drain the terminal" action="Drain" send={drain}>
          <Field label="Maintenance in, min" name="in" type="number" min="0" max="1440" step="any" defaultValue="5" required />
          <Field label="for, min" name="for" type="number" min="0.1" max="10080" step="any" defaultValue="30" required />
          <Field label="note" name="note" maxLength={200} />
        </Form>
      )}
    </section>
  );
}
