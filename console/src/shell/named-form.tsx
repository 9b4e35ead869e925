import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Field, Form } from "./form";

interface Props {
  /** What it is: "tenant". */
  what: string;
  /** What is done with one that is there: "Rename". */
  verb: string;
  /** That one; absent: a new one is made. */
  changed: { id: string; name: string } | undefined;
  /** Tells whether there is one of an id; absent until that is known. */
  isThere: ((id: string) => boolean) | undefined;
  /** What was wrong with which field of what was sent last. */
  members: Readonly<Record<string, string>>;
  send: (id: string, form: HTMLFormElement) => Promise<boolean>;
  leave: () => void;
  /** Its fields but for id and name. */
  children?: ComponentChildren;
}

/** Makes something with an id of its own, or changes it. */
export function NamedForm({ what, verb, changed, isThere, members, send, leave, children }: Props) {
  const [taken, setTaken] = useState<string>();
  const submit = async (form: HTMLFormElement) => {
    const id = changed?.id ?? String(new FormData(form).get("id"));
    // The service would change the one that is there.
    const isTaken = !changed && isThere?.(id) === true;
    setTaken(isTaken ? `there is a ${what} ${id} already` : undefined);
    return !isTaken && send(id, form);
  };
  return (
    <Form
      label={changed ? `${verb} the ${what} ${changed.id}` : `Make a ${what}`}
      action={changed ? verb : "Make"}
      send={submit}
      wrong={taken === undefined ? members : { id: taken }}
      disabled={!changed && !isThere}
      after={
        changed && (
          <button type="button" onClick={leave}>
            Leave it
          </button>
        )
      }
    >
      {!changed && <Field label="Id" name="id" required maxLength={64} pattern="[a-z0-9][a-z0-9_\-]*" autocomplete="off" autocapitalize="none" />}
      <Field label="Name" name="name" required maxLength={200} autocomplete="off" defaultValue={changed?.name ?? ""} />
      {children}
    </Form>
  );
}
