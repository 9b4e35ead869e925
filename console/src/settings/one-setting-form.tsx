/** Changes one setting of a terminal, and of others after it: typed, looked at, rolled out, and followed. */

import { useRef, useState } from "preact/hooks";
import { filled, textOf } from "../access/listed";
import { ApiError } from "../api/client";
import type { Rollout, Terminal } from "../api/types";
import { Choice } from "../shell/choice";
import { useLive } from "../shell/context";
import { Field, Flaw, Flawed, Form } from "../shell/form";
import { fieldErrors, namesOf, PARTS, rolloutFor, WHO } from "./one-setting";
import { RolloutLook, type Seen, seenOf } from "./rollout-look";
import { RolloutProgress } from "./rollout-progress";
import { boundsOf, FieldError, fieldOf, type Member, type Setting } from "./setting-schema";

const LONGEST_HOLD_S = 31 * 86_400;
const NONE: Readonly<Record<string, string>> = {};

export function OneSetting({ terminal }: { terminal: Terminal }) {
  const [isOpen, setOpen] = useState(false);
  const [begun, setBegun] = useState<Rollout>();
  const done = (rollout: Rollout) => {
    setBegun(rollout);
    setOpen(false);
  };
  return (
    <>
      <p>
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          Change a setting
        </button>
      </p>
      {isOpen && <SettingForm terminal={terminal} done={done} />}
      {begun && <RolloutProgress key={begun.id} begun={begun} />}
    </>
  );
}

interface Props {
  terminal: Terminal;
  done: (begun: Rollout) => void;
}

function SettingForm({ terminal, done }: Props) {
  const { client, fleet } = useLive();
  const [part, setPart] = useState(0);
  const [chosen, setChosen] = useState(0);
  const [who, setWho] = useState(0);
  const [wrong, setWrong] = useState(NONE);
  const [flaw, setFlaw] = useState<string>();
  const [seen, setSeen] = useState<Seen>();
  // How many edits there were: what is seen is of the form as it was sent.
  const edits = useRef(0);
  const place = PARTS[part] ?? PARTS[0];
  const setting = place.settings[chosen] ?? place.settings[0];
  if (!setting) return null;
  const edited = () => {
    edits.current += 1;
    setSeen(undefined);
  };
  const attempt = async (work: () => Promise<void>) => {
    setWrong(NONE);
    setFlaw(undefined);
    setSeen(undefined);
    try {
      await work();
    } catch (error) {
      const found = error instanceof FieldError ? { [error.field]: error.message } : error instanceof ApiError ? fieldErrors(error, setting) : NONE;
      setWrong(found);
      // What stands at its field is not said twice.
      if (Object.keys(found).length === 0) setFlaw(textOf(error));
    }
  };
  const look = async (form: HTMLFormElement) => {
    const sent = edits.current;
    await attempt(async () => {
      const body = rolloutFor(terminal, { place, setting, who: WHO[who] ?? "this" }, filled(form), fleet.terminals.values());
      const found = await seenOf(client, body, []);
      if (edits.current === sent) setSeen(found);
    });
    return false;
  };
  const begin = ({ body }: Seen) => attempt(async () => done(await client.post<Rollout>("v1/rollouts", body)));
  return (
    <div onInput={edited}>
      <Form label={`Change a setting of ${terminal.name}`} action="Look at the change" send={look} wrong={wrong} opened>
        <Choice
          label="Of a"
          of={PARTS.map(({ of }) => [of, of])}
          value={part}
          onChange={(next) => {
            setPart(next);
            setChosen(0);
          }}
        />
        <Name key={place.part} of={place.of} known={namesOf(fleet.vehicles.get(terminal.node)?.return)[place.part]} />
        <Choice label="Setting" of={place.settings.map(({ label, key }) => [label, key])} value={chosen} onChange={setChosen} />
        {setting.members.map((member) => (
          <Value key={fieldOf(setting, member)} setting={setting} member={member} />
        ))}
        {setting.isTable && <p class="note">They are set together: what is left empty is the node's default.</p>}
        <Choice
          label="For"
          of={[
            ["this terminal", 0],
            ["this one, then those with the numbers", 1],
            ["this one, then all with a tag", 2],
            ["this one, then all others of its beam", 3],
          ]}
          value={who}
          onChange={setWho}
        />
        <Others who={WHO[who] ?? "this"} />
      </Form>
      <Flaw>{flaw}</Flaw>
      {seen && <RolloutLook seen={seen} begin={() => void begin(seen)} leave={() => setSeen(undefined)} />}
    </div>
  );
}

function Name({ of, known }: { of: string; known: readonly string[] }) {
  return (
    <>
      <Field label={of === "class" ? "Class" : "Path"} name="name" required maxLength={128} autocomplete="off" list="known-names" />
      <datalist id="known-names">
        {known.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </>
  );
}

function Value({ setting, member }: { setting: Setting; member: Member }) {
  const { label, input } = member;
  const name = fieldOf(setting, member);
  const required = !setting.isTable;
  if (input.kind === "number") return <Field label={label} name={name} type="number" required={required} {...boundsOf(input)} />;
  if (input.kind === "names") return <Field label={label} name={name} required={required} placeholder={input.example} autocomplete="off" />;
  const of = input.kind === "choice" ? input.of : ["yes", "no"];
  return (
    <Flawed member={name}>
      {(flaw) => (
        <label>
          {label}{" "}
          <select name={name} required={required} {...flaw}>
            <option value="">{required ? "choose" : "the default"}</option>
            {of.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
      )}
    </Flawed>
  );
}

function Others({ who }: { who: (typeof WHO)[number] }) {
  const { fleet } = useLive();
  if (who === "this") return null;
  const tags = new Set([...fleet.terminals.values()].flatMap((one) => one.tags ?? []));
  return (
    <>
      {who === "numbers" && <Field label="Numbers" name="terminals" required pattern="[0-9, ]*" placeholder="10, 11" autocomplete="off" />}
      {who === "tag" && (
        <label>
          Tag{" "}
          <select name="tag" required>
            {[...tags].sort().map((tag) => (
              <option key={tag}>{tag}</option>
            ))}
          </select>
        </label>
      )}
      <Field label="Terminals of each stage" name="stages" pattern="[0-9, ]*" placeholder="1, 10" autocomplete="off" />
      <Field label="Each holds for, s" name="hold_s" type="number" min="0" max={LONGEST_HOLD_S} step="any" placeholder="300" />
    </>
  );
}
