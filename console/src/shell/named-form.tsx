import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Field, Form } from "./form";

interface Props {
  /** The kind of object: "tenant". */
  what: string;
  /** The action on an existing one: "Rename". */
  verb: string;
  /** The existing one; absent to make a new one. */
  changed: { id: string; name: string } | undefined;
  /** Tells whether an id is taken; absent until that is known. */
  isThere: ((id: string) => boolean) | undefined;
  /** What the service found wrong with the last request, by field. */
  members: Readonly<Record<string, string>>;
  send: (id: string, form: HTMLFormElement) => Promise<boolean>;
  leave: () => void;
  /** The fields besides id and name. */
  children?: ComponentChildren;
}

/** Makes or changes an object with an id. */
export function NamedForm({ what, verb, changed, isThere, members, send, leave, children }: Props) {
  const [taken, setTaken] = useState<string>();
  const submit = async (form: HTMLFormElement) => {
    const id = changed?.id ?? String(new FormData(form).get("id"));
    // The service would change the existing one.
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
      opened={changed !== undefined}
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
