/** Tokens by which bare nodes join the fleet: makes them, shows them once, and withdraws them. */

import { useState } from "preact/hooks";
import { filled, textOf, useListed } from "../access/listed";
import type { Enrolment } from "../api/types";
import { useLive, useTick } from "../shell/context";
import { dated, instant } from "../shell/dates";
import { Field, Flaw, Flawed, Form } from "../shell/form";
import { operates } from "../shell/may-operate";
import { Only } from "../shell/only";
import { Table } from "../shell/table";
import { MOST_NODE, RevocationForm } from "../terminal/revocation";
import { commandOf, filledIn, namesIn, stateOf } from "./enrolment-text";

const DAY_MS = 86_400_000;
/** Subtracted from whole days: the clocks differ, and the service refuses more than its maximum. */
const MARGIN_MS = 60_000;
const MOST_DAYS = 90;
const LONGEST_CONFIGURATION = 65_536;
/** Older enrolments are found by their node. */
const SHOWN = 200;
/** No event tells that a node has used its token. */
const READ_EVERY_MS = 15_000;
const BADGES = { waiting: "waiting", used: "up", withdrawn: "silent", expired: "silent" } as const;

export function Enrolments() {
  return (
    <Only may={operates} otherwise="Nodes are enrolled by operators of the whole.">
      <OfWhole />
    </Only>
  );
}

/** A token that has just been made. */
interface Made {
  node: number;
  token: string;
}

function OfWhole() {
  const live = useLive();
  const [node, setNode] = useState("");
  const path = `v1/enrolments?order=newest${node && `&node=${node}`}`;
  const { entries, flaw, members, change } = useListed<Enrolment>(path, "enrolments", { most: SHOWN, everyMs: READ_EVERY_MS });
  const [made, setMade] = useState<Made>();
  // A refused request leaves the previous token on the page: that cannot be shown again.
  const make = (body: unknown) => change(async () => setMade(await live.client.post<Made>("v1/enrolments", body)));
  const withdraw = (one: Enrolment) => {
    const what = `Withdraw the token of node ${one.node}? It can be used no more; a certificate that it has led to stays good.`;
    if (confirm(what)) void change(() => live.client.delete(`v1/enrolments/${one.id}`));
  };
  return (
    <>
      <p>
        A bare node becomes one of the fleet by one command with a token of its own. The token is for its number and
        for one key, and brings its configuration.
      </p>
      <EnrolmentForm members={members} make={make} />
      <Flaw>{flaw}</Flaw>
      <div role="status">{made && <Command key={made.token} made={made} />}</div>
      <p class="filters">
        <label>
          Of node{" "}
          <input
            type="number"
            min={1}
            max={MOST_NODE}
            onChange={({ currentTarget: field }) => {
              // Set here and not when rendering, which would overwrite what the user is typing.
              field.value = field.validity.valid && field.value ? String(Number(field.value)) : "";
              setNode(field.value);
            }}
          />
        </label>
      </p>
      {entries && entries.length >= SHOWN && <p class="count">The newest {SHOWN}; others are found by their node.</p>}
      {entries?.length === 0 && <p>There are none.</p>}
      <List entries={entries ?? []} withdraw={withdraw} />
      <RevocationForm />
    </>
  );
}

interface FormProps {
  members: Readonly<Record<string, string>>;
  make: (body: unknown) => Promise<boolean>;
}

function EnrolmentForm({ members, make }: FormProps) {
  const live = useLive();
  // The template stays for the next node.
  const [template, setTemplate] = useState("");
  const [flaw, setFlaw] = useState<string>();
  const send = async (form: HTMLFormElement) => {
    const { node: typed, days, ...given } = filled(form);
    // TOML does not allow 007, and 1e3 is not an integer there.
    const node = Number(typed);
    const values = Object.fromEntries(namesIn(template).map((name) => [name, given[fieldOf(name)] ?? ""]));
    setFlaw(undefined);
    let configuration: string;
    try {
      configuration = filledIn(template, { ...values, node: String(node) });
    } catch (error) {
      setFlaw(textOf(error));
      return false;
    }
    const expires = new Date(live.now() + Number(days) * DAY_MS - MARGIN_MS).toISOString();
    const done = await make({ node, configuration, expires });
    const field = form.elements.namedItem("node") as HTMLInputElement;
    // The user may have typed the next number meanwhile.
    if (done && field.value === typed) field.value = "";
    return false;
  };
  const choose = async (event: Event) => {
    const chosen = (event.currentTarget as HTMLInputElement).files?.[0];
    if (!chosen) return;
    const isSmall = chosen.size <= LONGEST_CONFIGURATION;
    if (isSmall) setTemplate(await chosen.text());
    setFlaw(isSmall ? undefined : "The file has more than 64 KiB: it is no configuration.");
  };
  return (
    <Form label="Let a node be enrolled" action="Make a token" send={send} wrong={flaw === undefined ? members : { configuration: flaw }}>
      <Field label="Node" name="node" type="number" required min={1} max={MOST_NODE} autocomplete="off" />
      <Field label="Good for days" name="days" member="expires" type="number" required min={1} max={MOST_DAYS} defaultValue="7" />
      <label>
        Configuration from a file <input type="file" accept=".toml" onChange={(event) => void choose(event)} />
      </label>
      <Flawed member="configuration">
        {(wrong) => (
          <label>
            Configuration, TOML; {"${node}"} stands for the number
            <textarea
              name="configuration"
              required
              rows={8}
              maxLength={LONGEST_CONFIGURATION}
              spellcheck={false}
              value={template}
              onInput={(event) => setTemplate(event.currentTarget.value)}
              {...wrong}
            />
          </label>
        )}
      </Flawed>
      {namesIn(template).map((name) => (
        <Field key={name} label={`\${${name}}`} name={fieldOf(name)} required autocomplete="off" />
      ))}
    </Form>
  );
}

/** Names the field for a template's name: the $ avoids a clash with the form's other fields. */
function fieldOf(name: string): string {
  return `$${name}`;
}

function Command({ made: { node, token } }: { made: Made }) {
  const live = useLive();
  const [copied, setCopied] = useState(false);
  const { command, needsUrl } = commandOf(live.client.base, token);
  const copy = () => void navigator.clipboard.writeText(command).then(() => setCopied(true), () => undefined);
  return (
    <>
      <p>
        To be typed at node {node}; it is shown this once: <code>{command}</code>{" "}
        {/* Browsers offer the clipboard only to pages that came over TLS. */}
        {"clipboard" in navigator && (
          <button type="button" onClick={copy}>
            {copied ? "Copied" : "Copy"}
          </button>
        )}
      </p>
      {needsUrl && <p class="flaw">Put in the address at which nodes find the service by TLS: this page has none.</p>}
      {!live.fleet.terminals.has(node) && (
        <p class="note">No terminal has this number yet: if it is to be one, its hub has to know it.</p>
      )}
    </>
  );
}

interface ListProps {
  entries: Enrolment[];
  withdraw: (one: Enrolment) => void;
}

function List({ entries, withdraw }: ListProps) {
  const live = useLive();
  useTick(5000);
  return (
    <Table label="Enrolments" columns={[{ number: "Node" }, "Name", "State", "Made, UTC", "Good until, UTC", "Actions"]}>
      {entries.map((one) => {
        const state = stateOf(one, live.now());
        return (
          <tr key={one.id}>
            <th scope="row" class="number">
              {one.node}
            </th>
            <td>{live.fleet.terminals.get(one.node)?.name}</td>
            <td>
              <span class={`badge ${BADGES[state]}`}>{state}</span> {one.used && instant(Date.parse(one.used))}
            </td>
            <td>{dated(Date.parse(one.created))}</td>
            <td>{dated(Date.parse(one.expires))}</td>
            <td>
              {state === "waiting" && (
                <button type="button" aria-label={`Withdraw the token of node ${one.node}`} onClick={() => withdraw(one)}>
                  Withdraw
                </button>
              )}
            </td>
          </tr>
        );
      })}
    </Table>
  );
}
