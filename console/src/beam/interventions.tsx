import { useEffect, useState } from "preact/hooks";
import { useListed } from "../access/listed";
import type { Intervention } from "../api/types";
import { useLive } from "../shell/context";
import { Flaw, Form } from "../shell/form";
import { useMayOperate } from "../shell/may-operate";
import { utcOn } from "../shell/dates";
import { seconds } from "../shell/format";
import { Table } from "../shell/table";
import { CHOICES, type Choice, describe, type Fields, requestOf } from "./intervention-text";
import { TerminalChoice } from "./terminal-choice";

const EXTEND_MS = 600_000;
const EMPTY: Fields = { choice: "freeze", terminal: undefined, forward: "", return: "", inMin: "0", forMin: "10", note: "" };

/** Interventions on the beam and its terminals: by whom, until when; set, extended, released. */
export function Interventions({ beam }: { beam: string }) {
  const live = useLive();
  const mayOperate = useMayOperate();
  const { entries, flaw, change, reread } = useListed<Intervention>(`v1/interventions?beam=${beam}`, "interventions");
  useEffect(
    () =>
      live.listen(({ kind, data }) => {
        if (kind === "intervention" && data.beam === beam) reread();
      }),
    [live, beam],
  );
  const now = live.now();
  const current = entries?.filter((one) => Date.parse(one.until) > now);
  const path = (one: Intervention) => `v1/interventions/${one.id}`;
  const extend = (one: Intervention) => {
    const until = new Date(Date.parse(one.until) + EXTEND_MS).toISOString();
    void change(() => live.client.send("PUT", path(one), { until }, one.revision));
  };
  const nameOf = (node: number) => live.fleet.nameOf(node);
  const release = (one: Intervention) => {
    if (confirm(`Release at once? ${describe(one, nameOf)}.`)) void change(() => live.client.delete(path(one), one.revision));
  };
  return (
    <section class="card" aria-labelledby="interventions">
      <h2 id="interventions">Set by operators</h2>
      <Flaw>{flaw}</Flaw>
      {current?.length === 0 && <p>Nothing: the planner decides alone.</p>}
      {current && current.length > 0 && (
        <Table
          label="What operators have set"
          columns={["What", "From, UTC", "Until, UTC", "By", "Note", ...(mayOperate ? ["Actions"] : [])]}
        >
          {current.map((one) => (
            <tr key={one.id}>
              <th scope="row">{describe(one, nameOf)}</th>
              <td>{utcOn(Date.parse(one.from), now)}</td>
              <td>
                {utcOn(Date.parse(one.until), now)}, in {seconds(Date.parse(one.until) - now)}
              </td>
              <td>{one.set_by ?? "an operator"}</td>
              <td>{one.note ?? ""}</td>
              {mayOperate && (
                <td>
                  {one.kind !== "withdrawal" && (
                    <button type="button" aria-label={`Ten minutes more of number ${one.id}`} onClick={() => extend(one)}>
                      +10 min
                    </button>
                  )}{" "}
                  <button type="button" aria-label={`Release number ${one.id}`} onClick={() => release(one)}>
                    Release
                  </button>
                </td>
              )}
            </tr>
          ))}
        </Table>
      )}
      {mayOperate && <InterventionForm beam={beam} onSet={(body) => change(() => live.client.post("v1/interventions", body))} />}
    </section>
  );
}

function InterventionForm({ beam, onSet }: { beam: string; onSet: (body: unknown) => Promise<boolean> }) {
  const live = useLive();
  const [fields, setFields] = useState(EMPTY);
  const [missing, setMissing] = useState<string>();
  const put = (changed: Partial<Fields>) => setFields((before) => ({ ...before, ...changed }));
  const set = async () => {
    const body = requestOf(fields, beam, live.now());
    setMissing(typeof body === "string" ? body : undefined);
    // Text typed meanwhile stays.
    if (typeof body !== "string" && (await onSet(body))) setFields((now) => (now === fields ? EMPTY : now));
    return false;
  };
  const { choice } = fields;
  const number = (name: "forward" | "return" | "inMin" | "forMin", text: string, least: string) => (
    <label>
      {text}{" "}
      <input type="number" min={least} max="1000000" step="any" value={fields[name]} onInput={(e) => put({ [name]: e.currentTarget.value })} />
    </label>
  );
  return (
    <Form class="what-if" label="Set something for a time" action="Set" send={set}>
      <label>
        What{" "}
        <select value={choice} onChange={(e) => put({ choice: e.currentTarget.value as Choice })}>
          {Object.entries(CHOICES).map(([name, text]) => (
            <option key={name} value={name}>
              {text}
            </option>
          ))}
        </select>
      </label>
      {(choice === "rate" || choice === "terminal-maintenance") && (
        <TerminalChoice beam={beam} value={fields.terminal} onChange={(terminal) => put({ terminal })} />
      )}
      {(choice === "rate" || choice === "beam-maintenance") && (
        <>
          {number("forward", "forward, Mbit/s (empty: as it is)", "0")}
          {number("return", "return, Mbit/s (empty: as it is)", "0")}
        </>
      )}
      {number("inMin", "begins in, min", "0")}
      {number("forMin", "lasts, min", "0.1")}
      <label>
        note <input maxLength={200} value={fields.note} onInput={(e) => put({ note: e.currentTarget.value })} />
      </label>
      {missing && <Flaw>{missing}</Flaw>}
    </Form>
  );
}
