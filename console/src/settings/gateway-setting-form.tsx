/** Types one setting of a gateway: of a terminal there, or of a class of what it sends. */

import { useRef, useState } from "preact/hooks";
import { filled, textOf } from "../access/listed";
import type { LinkState, Terminal } from "../api/types";
import { Choice } from "../shell/choice";
import { useLive } from "../shell/context";
import { Field, Flaw, Form } from "../shell/form";
import { MOST_NODE } from "../terminal/revocation";
import { fieldErrors, namesOf } from "./one-setting";
import { type Edit, editOf, type Place, withSetting } from "./setting-document";
import { Name, Values } from "./setting-fields";
import { CLASS_SETTINGS, TERMINAL_SETTINGS, valueOf } from "./setting-schema";

interface Props {
  gateway: number;
  /** Where the gateway's settings are. */
  path: string;
  /** The terminal that may be chosen; without it, any of the gateway's by its number. */
  terminal: Terminal | undefined;
  /** What the gateway sends, which names its classes. */
  sends: LinkState | undefined;
  /** Called with what the change would change, and with nothing once the form has been edited since. */
  onEdit: (edit: Edit | undefined) => void;
}

const NONE: Readonly<Record<string, string>> = {};

export function GatewaySettingForm({ gateway, path, terminal, sends, onEdit }: Props) {
  const { client } = useLive();
  const [ofClass, setOfClass] = useState(false);
  const [chosen, setChosen] = useState(0);
  const [wrong, setWrong] = useState(NONE);
  const [flaw, setFlaw] = useState<string>();
  const edits = useRef(0);
  const settings = ofClass ? CLASS_SETTINGS : TERMINAL_SETTINGS;
  const setting = settings[chosen] ?? settings[0];
  if (!setting) return null;
  const edited = () => {
    edits.current += 1;
    onEdit(undefined);
  };
  const look = async (form: HTMLFormElement) => {
    const sent = edits.current;
    setWrong(NONE);
    setFlaw(undefined);
    onEdit(undefined);
    try {
      const fields = filled(form);
      const value = valueOf(setting, fields);
      const place: Place = ofClass ? { list: "classes", id: fields.name ?? "" } : { list: "terminals", id: terminal?.node ?? Number(fields.terminal) };
      const found = await editOf(client, path, (document) => withSetting(document, place, setting.key, value));
      if (edits.current === sent) onEdit(found);
    } catch (error) {
      const found = fieldErrors(error, setting);
      setWrong(found);
      if (Object.keys(found).length === 0) setFlaw(textOf(error));
    }
    return false;
  };
  return (
    <div onInput={edited}>
      <Form label={`Change a setting of gateway ${gateway}`} action="Look at the change" send={look} wrong={wrong} opened>
        <Choice
          label="Of"
          of={[
            [terminal ? `${terminal.name} there` : "one of its terminals", 0],
            ["a class, for all terminals", 1],
          ]}
          value={ofClass ? 1 : 0}
          onChange={(next) => {
            setOfClass(next === 1);
            setChosen(0);
          }}
        />
        {ofClass && <Name of="class" known={namesOf(sends).classes} />}
        {!ofClass && !terminal && <Field label="Terminal" name="terminal" type="number" required min={1} max={MOST_NODE} autocomplete="off" />}
        <Choice label="Setting" of={settings.map(({ label, key }) => [label, key])} value={chosen} onChange={setChosen} />
        <Values key={`${ofClass} ${setting.key}`} of={setting} />
      </Form>
      <Flaw>{flaw}</Flaw>
    </div>
  );
}
