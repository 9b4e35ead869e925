import { useState } from "preact/hooks";
import { filled, useListed } from "../access/listed";
import type { AlertKind, AlertRule } from "../api/types";
import { useLive } from "../shell/context";
import { KINDS, ruleOf, ruleText } from "./rule-text";

/** The service takes none longer. */
const MOST_LIMIT_S = 366 * 86_400;
const MOST_WAIT_S = 7 * 86_400;

export function Rules() {
  const live = useLive();
  const { entries, flaw, change } = useListed<AlertRule>("v1/alert-rules", "rules");
  const [kind, setKind] = useState<AlertKind>("unheard");
  const { field } = KINDS[kind];
  const add = async (event: Event) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    if (await change(() => live.client.post("v1/alert-rules", ruleOf(filled(form))))) {
      form.reset();
      setKind("unheard");
    }
  };
  const remove = (one: AlertRule) => void change(() => live.client.delete(`v1/alert-rules/${one.id}`));
  return (
    <section aria-labelledby="rules">
      <h2 id="rules">Rules</h2>
      <form class="tools" aria-label="Make a rule" onSubmit={(event) => void add(event)}>
        <label>
          Name <input name="name" required maxLength={200} autocomplete="off" />
        </label>
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
          <label key="version">
            {field.label} <input name="version" required maxLength={64} pattern="[!-~]+" autocomplete="off" />
          </label>
        ) : (
          <label key={field.label}>
            {field.label} <input name="limit" type="number" required min="0.001" max={MOST_LIMIT_S / field.unit_s} step="any" />
          </label>
        )}
        <label>
          Fires after, s <input name="for_s" type="number" min="0" max={MOST_WAIT_S} step="any" placeholder="0" />
        </label>
        <label>
          Resolved after, s <input name="keep_firing_for_s" type="number" min="0" max={MOST_WAIT_S} step="any" placeholder="60" />
        </label>
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
        <button type="submit">Make</button>
      </form>
      <p class="flaw" role="alert">
        {flaw}
      </p>
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
