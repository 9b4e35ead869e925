import { useState } from "preact/hooks";
import { filled, useListed } from "../access/listed";
import type { AlertKind, AlertRule } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { KINDS, ruleOf, ruleText } from "./rule-text";

/** The service takes none longer. */
const MOST_LIMIT_S = 366 * 86_400;
const MOST_WAIT_S = 7 * 86_400;

export function Rules() {
  const live = useLive();
  const { entries, flaw, members, change } = useListed<AlertRule>("v1/alert-rules", "rules");
  const [kind, setKind] = useState<AlertKind>("unheard");
  const { field } = KINDS[kind];
  const add = (form: HTMLFormElement) => {
    const rule = ruleOf(filled(form));
    return change(() => live.client.post("v1/alert-rules", rule));
  };
  const remove = (one: AlertRule) => {
    if (confirm(`Delete the rule ${one.name}? What fires by it is resolved, and nobody is told of it any more.`)) {
      void change(() => live.client.delete(`v1/alert-rules/${one.id}`));
    }
  };
  return (
    <section aria-labelledby="rules">
      <h2 id="rules">Rules</h2>
      <Form label="Make a rule" action="Make" send={add} emptied={() => setKind("unheard")} wrong={members}>
        <Field label="Name" name="name" required maxLength={200} autocomplete="off" />
        <label>
          Fires when{" "}
          <select name="kind" value={kind} onChange={(event) => setKind(event.currentTarget.value as AlertKind)}>
            {Object.entries(KINDS).map(([name, { when }]) => (
              <option key={name} value={name}>
                {when}
              </option>
            ))}
          </select>
        </label>
        {field.name === "version" ? (
          <Field key="version" label={field.label} name="version" required maxLength={64} pattern="[!-~]+" autocomplete="off" />
        ) : (
          <Field key={field.label} label={field.label} name="limit" member="limit_s" type="number" required min="0.001" max={MOST_LIMIT_S / field.unit_s} step="any" />
        )}
        <Field label="Fires after, s" name="for_s" type="number" min="0" max={MOST_WAIT_S} step="any" placeholder="0" />
        <Field label="Resolved after, s" name="keep_firing_for_s" type="number" min="0" max={MOST_WAIT_S} step="any" placeholder="60" />
        <label>
          Beam{" "}
          <select name="beam">
            <option value="">all beams</option>
            {[...live.fleet.beams.values()].map((beam) => (
              <option key={beam.id} value={beam.id}>
                {beam.name}
              </option>
            ))}
          </select>
        </label>
      </Form>
      <Flaw>{flaw}</Flaw>
      {entries?.length === 0 && <p>There are none: nothing fires.</p>}
      <ul>
        {entries?.map((one) => (
          <li key={one.id}>
            {one.name}: {ruleText(one)}{" "}
            <button type="button" aria-label={`Delete the rule ${one.name}`} onClick={() => remove(one)}>
              Delete
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
