/** The fields of a form for one setting. */

import { useId } from "preact/hooks";
import { Field, Flawed } from "../shell/form";
import { boundsOf, fieldOf, type Member, type Setting } from "./setting-schema";

/** Names a class or path: of those that are known, or another. */
export function Name({ of, known }: { of: string; known: readonly string[] }) {
  const id = useId();
  return (
    <>
      <Field label={of === "class" ? "Class" : "Path"} name="name" required maxLength={128} autocomplete="off" list={id} />
      <datalist id={id}>
        {known.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </>
  );
}

/** Types a setting's value. */
export function Values({ of: setting }: { of: Setting }) {
  return (
    <>
      {setting.members.map((member) => (
        <Value key={member.key} setting={setting} member={member} />
      ))}
      {setting.isTable && <p class="note">They are set together: what is left empty is the node's default.</p>}
    </>
  );
}

function Value({ setting, member }: { setting: Setting; member: Member }) {
  const { label, input } = member;
  const name = fieldOf(setting, member);
  const required = !setting.isTable;
  if (input.kind === "number") return <Field label={label} name={name} type="number" required={required} {...boundsOf(input)} />;
  if (input.kind === "name" || input.kind === "names") {
    const example = input.kind === "names" ? input.example : undefined;
    return <Field label={label} name={name} required={required} placeholder={example} maxLength={2_100} autocomplete="off" />;
  }
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
