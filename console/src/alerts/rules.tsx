import { filled, useListed } from "../access/listed";
import type { AlertKind, AlertRule } from "../api/types";
import { useLive } from "../shell/context";

/** What a rule looks for, and what its limit is of. */
const KINDS: Record<AlertKind, string> = {
  unheard: "a terminal is not heard for longer than the limit",
  "link-down": "a link is lost for longer than predicted, by the limit",
  debt: "a terminal owes more than its link carries in the limit",
};

export function Rules() {
  const live = useLive();
  const { entries, flaw, change } = useListed<AlertRule>("v1/alert-rules", "rules");
  const add = async (event: Event) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const { limit_s, ...body } = filled(form);
    if (await change(() => live.client.post("v1/alert-rules", { ...body, limit_s: Number(limit_s) }))) form.reset();
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
          <select name="kind">
            {Object.entries(KINDS).map(([kind, text]) => (
              <option key={kind} value={kind}>
                {text}
              </option>
            ))}
          </select>
        </label>
        <label>
          Limit, s <input name="limit_s" type="number" required min="0.001" max="2678400" step="any" />
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
            {one.name}: {KINDS[one.kind]}, {one.limit_s} s, {one.beam ? `beam ${one.beam}` : "all beams"}{" "}
            <button type="button" aria-label={`Delete the rule ${one.name}`} onClick={() => remove(one)}>
              Delete
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
