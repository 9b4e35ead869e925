import { useState } from "preact/hooks";
import { filled, useListed } from "../access/listed";
import type { AlertKind, AlertRule } from "../api/types";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { KINDS, ruleOf, ruleText } from "./rule-text";

/** The longest that the service accepts. */
const MOST_LIMIT_S = 366 * 86_400;
const MOST_WAIT_S = 7 * 86_400;

export function Rules() {
  const live = useLive();
  const { entries, flaw, members, change } = useListed<AlertRule>("v1/alert-rules", "rules");
  const [said, setSaid] = useState<string>();
  // The rule as it was when chosen, so that changes by others meanwhile are not undone.
  const [edited, setEdited] = useState<AlertRule>();
  const add = async (rule: Record<string, string | number>) => {
    setSaid(undefined);
    const done = await change(() => live.client.post("v1/alert-rules", rule));
    if (done) setSaid(`${rule.name} is made.`);
    return done;
  };
  const put = async (one: AlertRule, rule: Record<string, string | number>) => {
    setSaid(undefined);
    const done = await change(() => live.client.send("PUT", `v1/alert-rules/${one.id}`, rule, one.revision));
    if (done) setSaid(`${rule.name} is changed.`);
    // Another rule may have been chosen meanwhile.
    if (done) setEdited((now) => (now === one ? undefined : now));
    return done;
  };
  const edit = (one: AlertRule) => {
    setSaid(undefined);
    setEdited(one);
  };
  const remove = (one: AlertRule) => {
    setSaid(undefined);
    if (confirm(`Delete the rule ${one.name}? What fires by it is resolved, and nobody is told of it any more.`)) {
      void change(() => live.client.delete(`v1/alert-rules/${one.id}`, one.revision));
    }
  };
  return (
    <section aria-labelledby="rules">
      <h2 id="rules">Rules</h2>
      <RuleForm
        key={edited ? `${edited.id}.${edited.revision}` : ""}
        edited={edited}
        members={members}
        send={(rule) => (edited ? put(edited, rule) : add(rule))}
        leave={() => setEdited(undefined)}
      />
      <Flaw>{flaw}</Flaw>
      <p role="status">{said}</p>
      {entries?.length === 0 && <p>There are none: nothing fires.</p>}
      <ul>
        {entries?.map((one) => (
          <li key={one.id}>
            {one.name}: {ruleText(one)}{" "}
            <button type="button" aria-label={`Change the rule ${one.name}`} onClick={() => edit(one)}>
              Change
            </button>{" "}
            <button type="button" aria-label={`Delete the rule ${one.name}`} onClick={() => remove(one)}>
              Delete
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

interface FormProps {
  /** Absent for a new one. */
  edited: AlertRule | undefined;
  members: Readonly<Record<string, string>>;
  send: (rule: Record<string, string | number>) => Promise<boolean>;
  leave: () => void;
}

/** Makes a rule, or changes one; its kind cannot change. */
function RuleForm({ edited, members, send, leave }: FormProps) {
  const { fleet } = useLive();
  const [chosen, setChosen] = useState<AlertKind>("unheard");
  const kind = edited?.kind ?? chosen;
  const { when, field } = KINDS[kind];
  const limit = edited?.limit_s ? String(edited.limit_s / field.unit_s) : "";
  const submit = (form: HTMLFormElement) => send(ruleOf({ ...filled(form), kind }));
  return (
    <Form
      label={edited ? `Change the rule ${edited.name}` : "Make a rule"}
      action={edited ? "Change" : "Make"}
      send={submit}
      emptied={() => setChosen("unheard")}
      wrong={members}
      opened={edited !== undefined}
      after={
        edited && (
          <button type="button" onClick={leave}>
            Leave it
          </button>
        )
      }
    >
      <Field label="Name" name="name" required maxLength={200} autocomplete="off" defaultValue={edited?.name ?? ""} />
      {edited ? (
        <span>Fires when {when}</span>
      ) : (
        <label>
          Fires when{" "}
          <select name="kind" value={kind} onChange={(event) => setChosen(event.currentTarget.value as AlertKind)}>
            {Object.entries(KINDS).map(([name, text]) => (
              <option key={name} value={name}>
                {text.when}
              </option>
            ))}
          </select>
        </label>
      )}
      {field.name === "version" ? (
        <Field key="version" label={field.label} name="version" required maxLength={64} pattern="[!-~]+" autocomplete="off" defaultValue={edited?.version ?? ""} />
      ) : (
        <Field
          key={field.label}
          label={field.label}
          name="limit"
          member="limit_s"
          type="number"
          required
          min="0.001"
          max={MOST_LIMIT_S / field.unit_s}
          step="any"
          defaultValue={limit}
        />
      )}
      {wait("Fires after, s", "for_s", "0", edited?.for_s)}
      {wait("Resolved after, s", "keep_firing_for_s", "60", edited?.keep_firing_for_s)}
      <label>
        Beam{" "}
        <select name="beam">
          <option value="">all beams</option>
          {[...fleet.beams.values()].map((beam) => (
            <option key={beam.id} value={beam.id} selected={beam.id === edited?.beam}>
              {beam.name}
            </option>
          ))}
        </select>
      </label>
    </Form>
  );
}

function wait(label: string, name: string, otherwise: string, value: number | undefined) {
  const given = value === undefined ? "" : String(value);
  return <Field label={label} name={name} type="number" min="0" max={MOST_WAIT_S} step="any" placeholder={otherwise} defaultValue={given} />;
}
