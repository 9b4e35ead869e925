/** Changes one setting of a terminal, and of others after it: typed, looked at, rolled out, and followed. */

import { useRef, useState } from "preact/hooks";
import { filled, textOf } from "../access/listed";
import type { Rollout, Terminal } from "../api/types";
import { Choice } from "../shell/choice";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { fieldErrors, namesOf, PARTS, rolloutFor, WHO } from "./one-setting";
import { RolloutLook, type Seen, seenOf } from "./rollout-look";
import { RolloutProgress } from "./rollout-progress";
import { Name, Values } from "./setting-fields";

const LONGEST_HOLD_S = 31 * 86_400;
const NONE: Readonly<Record<string, string>> = {};

interface OneProps {
  terminal: Terminal;
  /** Called when the rollout has begun, and when it has made progress. */
  onChange: () => void;
}

export function OneSetting({ terminal, onChange }: OneProps) {
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
      {begun && <RolloutProgress key={begun.id} begun={begun} onChange={onChange} />}
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
      const found = fieldErrors(error, setting);
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
        <Values key={`${place.part} ${setting.key}`} of={setting} />
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
